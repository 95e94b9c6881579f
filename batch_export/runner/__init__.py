"""The runner: from planned cells to records. It supervises children; models run only in those."""
