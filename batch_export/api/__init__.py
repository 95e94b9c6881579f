"""What a program calls: `export` and `sweep`. `batch_export` itself shows both."""
