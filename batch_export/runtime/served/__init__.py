"""What runs inside other environments: `serve.py` and one module a runtime, given by path and never imported from here.

They need numpy and their runtime only, so that an environment holds nothing of ours. (`serve.py`'s frames are imported
by the side that asks as well.)
"""
