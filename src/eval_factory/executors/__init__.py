"""Backends that run a plan's command. Sees an argv, names and paths; knows nothing of HELM."""
