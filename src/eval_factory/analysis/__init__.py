"""Results of several output folders, compared: pure statistics of paired values, and what may be
compared with what.
"""
