"""Starts helm-run on this machine or as Slurm jobs.

The modules of this package know only command lines, names and paths, and nothing about HELM.
"""
