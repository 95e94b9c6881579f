"""Files that results depend on: what modules import, what configs name, and where the shipped ones lie."""
