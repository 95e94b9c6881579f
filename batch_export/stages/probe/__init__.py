"""A model that nobody has described yet: what it takes, which sizes may differ, what it gives. For `new` and `try`."""
