"""Reruns on machines that rank tensors by recency: cheap sequences of runs, and a bound for all of them."""
