"""Compiled loops that read and write memory at a chosen footprint."""
