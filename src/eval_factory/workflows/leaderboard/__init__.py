"""HELM's public leaderboards for the user's model: `leaderboards.yml` -> conf -> helm-run ->
helm-summarize.
"""
