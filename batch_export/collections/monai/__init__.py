"""The collection of MONAI: the classes of its `networks.nets`, small, with images that eager takes."""
