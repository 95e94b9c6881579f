"""What one export tells: its journal, the Markdown report and the SARIF log."""
