"""Data bundles: a folder that holds what runs of some tasks read, so that they need no network."""
