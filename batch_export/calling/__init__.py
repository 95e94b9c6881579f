"""How a model is called: what its inputs are made of, how axes are named. Every exporter and eager runs share it."""
