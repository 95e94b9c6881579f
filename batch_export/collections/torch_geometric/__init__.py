"""The collection of torch_geometric: the classes of its `nn.models`, small, with graphs that eager takes."""
