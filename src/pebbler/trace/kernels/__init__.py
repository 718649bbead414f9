"""Numba kernels on flat arrays, independent of graphs."""
