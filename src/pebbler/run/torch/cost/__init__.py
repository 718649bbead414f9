"""The cost of every op: time, energy, scratch memory."""
