"""How a model is called: what its inputs are made of, how their axes are named. Every exporter and eager runs share it."""
