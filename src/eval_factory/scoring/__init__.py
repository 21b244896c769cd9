"""Turns HELM's output and the request journal into typed results, with validity and statistics."""
