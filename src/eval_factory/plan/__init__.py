"""An evaluation -> a planned run: endpoints by role, credentials, scenario arguments, identity,
preflight.
"""
