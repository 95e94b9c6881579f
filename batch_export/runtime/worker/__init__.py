"""Runtimes in processes of their own: the side that asks."""
