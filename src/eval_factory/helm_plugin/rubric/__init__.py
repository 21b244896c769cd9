"""Code for rubric benchmarks inside helm-run: scenario, run specs, judges and metric."""
