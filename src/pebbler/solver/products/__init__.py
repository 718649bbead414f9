"""Orders of the multiplications of a matrix product: by loops, and by blocks that stay in the fastest level."""
