"""What strings the stages together: one evaluation, its preparation, resuming, dry runs,
leaderboards.
"""
