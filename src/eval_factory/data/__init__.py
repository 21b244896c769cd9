"""Creates, checks and uses data bundles: folders with all data that runs of some tasks need.

With a data bundle, a run needs no network except for its endpoints.
"""
