"""A failure made small: the smallest program that fails, in a folder with a script."""
