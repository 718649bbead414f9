"""Neighbouring operators as one op, and the kernels of such ops."""
