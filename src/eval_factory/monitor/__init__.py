"""Monitors a model: asks a fixed panel of instances repeatedly, and alarms if the answers worsen.

Each repetition is a look. The first askings of the panel are the baseline of all later looks.
"""
