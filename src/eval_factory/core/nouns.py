"""Words that several rooms mean the same by: said once, here."""

from __future__ import annotations

MODEL_ROLE = "model"
"""The evaluated model among the endpoints of a run; every other role is a judge's name."""
