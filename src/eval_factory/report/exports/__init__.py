"""Exports stored results in the formats of other programs. Each format has its own module."""
