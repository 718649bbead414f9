"""Compiled kernels of the layout of a fixed order."""
