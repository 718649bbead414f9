"""Programs of numbered cells, as the public records of matrix products have them: read, written, proven, handed in."""
