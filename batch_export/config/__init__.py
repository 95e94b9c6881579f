"""Hydra's configuration on its way to a frozen `RunSpec`; only here and in the command line is Hydra seen."""
