"""Measured energy: counters of GPUs and CPUs, windows long enough for them, and a machine calibrated with them."""
