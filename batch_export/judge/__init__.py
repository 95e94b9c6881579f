"""From facts to outcomes: verdicts, and where eager in float64 is needed to judge."""
