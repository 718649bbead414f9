"""Parallel jobs: an engine runs every job in its own process, and repeats jobs that are lost with a process."""
