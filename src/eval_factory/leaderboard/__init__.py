"""HELM's public leaderboards, run again for one's own model: `leaderboards.yml` -> conf -> helm-run -> helm-summarize."""
