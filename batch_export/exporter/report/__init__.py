"""What is reported of one export: its journal, the Markdown report and the SARIF log."""
