"""Sweeps over graphs, machines, capacities and options, with every run stored separately. `pb.sweep` is the entry point."""
