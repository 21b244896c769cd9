"""Compares the results of several output folders: which results are comparable, and the statistics
of their paired values.
"""
