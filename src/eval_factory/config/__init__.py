"""Turns YAML files, flags and overrides into one merged, validated and immutable evaluation."""
