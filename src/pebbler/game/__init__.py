"""The objects of a scheduling problem: graphs, their values and hazards, machines, moves, plans, transforms."""
