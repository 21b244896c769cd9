"""Configurations of nemo-evaluator-launcher and of EvalFactory, translated into run configs and suites.

What has no counterpart here is never dropped in silence: each such key is a `Finding`.
"""
