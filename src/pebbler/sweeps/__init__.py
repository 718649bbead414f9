"""Sweeps: graphs x machines x capacities x options, each a run that is kept by itself; `pb.sweep` is the door."""
