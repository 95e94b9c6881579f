"""The collection of diffusers: every class of its models, small, with inputs that eager takes."""
