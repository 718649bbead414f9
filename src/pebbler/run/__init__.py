"""Plans on real numbers and on real PyTorch models."""
