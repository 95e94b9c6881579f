"""Reports about one export."""
