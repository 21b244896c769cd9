"""Output folders -> what a page shows of them."""

from __future__ import annotations

from collections.abc import Sequence

from eval_factory.report import documents
from eval_factory.report.page.document import Shown, page
from eval_factory.report.page.instance_data import InstancePacker
from eval_factory.report.page.rubric_data import tags_of_groups
from eval_factory.report.papers import methods_text
from eval_factory.report.reader import StoredResult


def page_of(stored: StoredResult, *, with_texts: bool = True) -> str:
    """The page of one result: byte for byte the one that the run wrote, where texts are wanted."""
    return page(shown_of([stored], with_texts=with_texts), with_texts=with_texts)


def shown_of(stored: Sequence[StoredResult], labels: Sequence[str] = ("",), *, with_texts: bool = True) -> list[Shown]:
    """Each with its instances packed. What a result asks as another before it did is not repeated.

    Raises:
        PrerequisiteError: the files of instances cannot be read.
    """
    found: list[Shown] = []
    for number, (one, label) in enumerate(zip(stored, labels, strict=True)):
        result = one.result
        packer = InstancePacker(
            result.scores.get(result.main_metric), tuple(result.groups), number, with_texts=with_texts,
            known_prompts=found[0].instances.prompts if found else {}, tags=tags_of_groups(result.groups),
            beside_others=len(stored) > 1,
        )  # fmt: skip
        for record in result.instances:
            packer.add(documents.instance_line(record), documents.result_line(record))
        methods = methods_text(result, one.config, one.target)
        found.append(Shown(result, one.command, packer.finish(), methods, label))
    return found
