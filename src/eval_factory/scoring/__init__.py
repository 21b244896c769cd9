"""HELM's output and the request journal -> typed results with validity and statistics."""
