"""Errors and tolerances of tensors: values in, facts out. Knows neither models nor runs."""
