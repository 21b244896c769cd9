"""Values of many columns over the same questions: their keys are kept once, where a `dict` for each has its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from eval_factory.scoring.metric_values import InstanceKey


class SharedKeys:
    """The questions that a column has values of, and where each stands in it."""

    def __init__(self, keys: Sequence[InstanceKey | None]) -> None:
        """`keys`: of each place in a column; None: of a question that does not count."""
        self.places = {key: place for place, key in enumerate(keys) if key is not None}

    def column(self, values: Sequence[float | None]) -> Mapping[InstanceKey, float]:
        """The values that are there, by their questions. `values`: as many as there are keys."""
        if any(values[place] is None for place in self.places.values()):
            return {key: float(value) for key, at in self.places.items() if (value := values[at]) is not None}
        return _Column(self.places, values)


class _Column(Mapping[InstanceKey, float]):
    """Values are kept as they were read: nearly all are 0 or 1, the same two objects."""

    def __init__(self, places: Mapping[InstanceKey, int], values: Sequence[float | None]) -> None:
        self._places, self._values = places, values

    def __getitem__(self, key: InstanceKey) -> float:
        return float(self._values[self._places[key]] or 0.0)

    def __iter__(self) -> Iterator[InstanceKey]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)
