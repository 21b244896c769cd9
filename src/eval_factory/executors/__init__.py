"""Where helm-run is started. Sees an argv, names and paths; knows nothing of HELM."""
