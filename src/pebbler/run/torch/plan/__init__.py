"""Order, recomputation and copies to the host within a budget."""
