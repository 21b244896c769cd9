"""Loads results for a comparison so that the same version of the reader has read all answers.

The reader (the package `reading`) finds the option that an answer states; its rules have a version.
Two results can only be compared if the same version read both. If their versions differ, each
result that the current version did not read is collected again from its stored answers, as in
`verify`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from eval_factory.core.errors import EvalFactoryError
from eval_factory.core.rundir import RunDir
from eval_factory.reading import READER_VERSION
from eval_factory.report.reader import StoredResult, load_result

Load = Callable[[Path | str], StoredResult]
"""A function that loads the result of an output folder."""


@contextmanager
def read_by_one_version(
    folders: Sequence[Path | str], *, other_version: int | None = None
) -> Iterator[Load]:
    """Yield a function that loads the results of these folders.

    If one reader version has read all results, the function loads the stored results unchanged.
    Otherwise it loads the results as the current reader version reads them. Two kinds of results
    are always loaded unchanged: imported results, and results that cannot be collected again, for
    example because their answers were deleted. The comparison then refuses to compare results of
    different versions.

    Args:
        folders: The output folders of the results.
        other_version: The reader version of a further result, with which the results of `folders`
            are compared; None if there is no further result.
    """
    versions = set() if other_version is None else {other_version}
    for folder in folders:
        # The yielded function raises the error for a folder without a result.
        with suppress(EvalFactoryError):
            versions.add(load_result(folder).result.provenance.reader_version)
    if len(versions) < 2:  # one version, or none if no folder has a result
        yield load_result
        return
    with ExitStack() as stack:
        yield lambda folder: _read_by_current_version(load_result(folder), stack)


def _read_by_current_version(stored: StoredResult, stack: ExitStack) -> StoredResult:
    """Return the result as the current reader version reads it; unchanged if this is impossible.

    The temporary files of the new result exist until the stack is closed.
    """
    from eval_factory.workflows.recollect import recollected  # imported late: the import is slow

    provenance = stored.result.provenance
    if provenance.reader_version == READER_VERSION or provenance.imported is not None:
        return stored
    try:
        collected = stack.enter_context(recollected(RunDir(stored.folder), stored))
        return replace(stored, result=collected.result)
    except (EvalFactoryError, OSError):
        return stored
