"""Workflows that join the stages of an evaluation: preparation, evaluation, resuming, dry runs,
leaderboards.
"""
