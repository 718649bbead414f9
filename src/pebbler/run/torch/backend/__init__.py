"""pebbler as a backend of `torch.compile`: Dynamo captures and guards, Inductor writes kernels, pebbler decides what is saved."""
