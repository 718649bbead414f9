"""What is played: graphs, their values and hazards, machines, moves, plans, transforms."""
