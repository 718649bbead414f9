"""Numba kernels on flat arrays; they know nothing of graphs."""
