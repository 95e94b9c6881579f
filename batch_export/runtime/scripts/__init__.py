"""Scripts that stand alone: a report to a runtime's developers holds copies of them, and nothing else of ours.

`again.py` reads `case.json` and asks `runtime.py` beside it, which is the copy of one runtime's module here; each has
`outputs(path, settings, inputs) -> list of arrays` and `version() -> str`. `again.cjs` does both for Node.
"""
