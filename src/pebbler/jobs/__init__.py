"""Many pieces of work: an engine runs each in a process of its own, and what is lost with a process is done again elsewhere."""
