"""Rubric benchmarks: cases with criteria that a judge finds met or not."""
