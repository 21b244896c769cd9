"""Runs HELM's public leaderboards for the user's model.

The steps: find the leaderboard in `leaderboards.yml`, read its conf file, run its entries with
helm-run, and make the tables with helm-summarize.
"""
