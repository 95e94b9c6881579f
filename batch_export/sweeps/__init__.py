"""A sweep from its configuration to its exit code."""
