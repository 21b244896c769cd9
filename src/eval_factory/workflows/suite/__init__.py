"""Runs many evaluations of many targets with one command, and writes one table of the results."""
