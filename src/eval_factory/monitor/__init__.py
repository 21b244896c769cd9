"""A fixed panel of instances that is asked again and again: what changed, and whether it is
worse than allowed.
"""
