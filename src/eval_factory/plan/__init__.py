"""Turns an evaluation into the plan of a run: its endpoints, keys, prices and identity.

The package also probes the endpoints before a run.
"""
