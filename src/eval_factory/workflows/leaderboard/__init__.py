"""HELM's public leaderboards for one's own model: `leaderboards.yml` -> conf -> helm-run -> helm-summarize."""
