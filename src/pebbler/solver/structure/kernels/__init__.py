"""Kernels of orders from structure; they know nothing of graphs."""
