"""How the endpoint that is evaluated is told from the others of a run."""

from __future__ import annotations

MODEL_ROLE = "model"
"""The evaluated model among the endpoints of a run; every other role is a judge's name."""
