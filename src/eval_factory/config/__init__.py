"""From YAML, flags and overrides to one merged, validated, immutable evaluation."""
