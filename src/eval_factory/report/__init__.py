"""A typed result -> the files that people and programs read."""
