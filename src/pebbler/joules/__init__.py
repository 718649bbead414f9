"""Measured energy: counters of GPUs and CPUs, measurement windows of sufficient length, and calibration of machines."""
