"""The collection of timm: every registered model, with few blocks, and images that eager takes."""
