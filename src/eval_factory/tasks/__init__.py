"""Describes the tasks that can be run: those of `framework.yml`, HELM's run specs and run entries,
custom benchmarks, the users' own data, and the known errata of published benchmarks.
"""
