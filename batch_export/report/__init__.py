"""From records to what people and other tools read: table, summary.json, summary.md, summary.csv. Runs nothing."""
