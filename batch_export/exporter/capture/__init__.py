"""From a model to torch's exported program."""
