"""Turns HELM's output and the request journal into typed results.

A result has scores with statistics, and the facts that show how far the scores are valid.
"""
