"""Writes a result (`TaskResult`) as files that people and programs read."""
