"""What one export tells: its story, the Markdown report and the SARIF log."""
