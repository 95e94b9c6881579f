"""Environments of other packages: made once, kept by content, used by runtimes that run as processes of their own."""
