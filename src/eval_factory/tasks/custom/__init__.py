"""A custom benchmark: its definition, its table, its prompts, checked before anything is asked."""
