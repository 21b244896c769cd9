"""Rubric benchmarks inside helm-run: scenario, run specs, judging by criterion, metric."""
