"""What to do: the matrix of cells, the actions that each needs, and their keys."""
