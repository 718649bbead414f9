"""Methods for few problems that take many lines: pebble games, layouts on a grid, cell programs, reruns by recency."""
