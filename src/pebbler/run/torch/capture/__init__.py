"""A training step, recorded and turned into graphs in bytes."""
