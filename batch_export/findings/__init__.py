"""What went wrong, as every report says it: diagnostics with a fingerprint, and the SARIF log."""
