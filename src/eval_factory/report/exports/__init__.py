"""A stored result -> the formats of other programs."""
