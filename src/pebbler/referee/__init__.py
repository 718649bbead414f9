"""Who judges: whether a plan is legal, and what it costs."""
