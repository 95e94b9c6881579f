"""Stages that obey a model's arguments instead of exporting: they pass, raise, crash, hang, leak or exit on demand."""
