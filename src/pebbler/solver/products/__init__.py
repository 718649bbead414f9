"""Orders of the multiplications of a matrix product, and the search for one whose layout is cheap."""
