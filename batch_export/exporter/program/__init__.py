"""The result: a model that runs on tensors and is saved to a file."""
