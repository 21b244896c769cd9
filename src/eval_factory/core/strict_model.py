"""The base of the models that read a file."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class StrictModel(BaseModel):
    """A record that cannot be changed; a key that it does not know is a mistake, not ignored.

    A model that differs says so in its class line: records of files that another program writes ignore unknown keys.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
