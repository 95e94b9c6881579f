"""The collection of transformers: every type of its mappings, small, with inputs that eager takes."""
