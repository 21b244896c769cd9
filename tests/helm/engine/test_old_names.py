"""Names that earlier versions wrote into output folders."""

from __future__ import annotations

import importlib
import logging.config
import subprocess
import sys

import pytest
from helm.common.object_spec import get_class_by_name

from eval_factory import engine
from eval_factory.helm import names
from eval_factory.helm_plugin import client, log_filter, runner

LOADS_NOTHING = """
import sys
import eval_factory.engine
print(*(name for name in sys.modules if name.startswith(("helm", "eval_factory.helm_plugin"))))
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("client.EndpointClient", client.EndpointClient),
        ("runner.EvalRunner", runner.EvalRunner),
        ("log_filter.WithholdText", log_filter.WithholdText),
    ],
)
def test_an_old_name_is_the_new_class(old: str, new: type) -> None:
    spec = getattr(new, "__module__", "") and importlib.import_module(new.__module__).__spec__
    assert get_class_by_name(f"eval_factory.engine.{old}") is new
    assert new.__module__.startswith("eval_factory.helm_plugin.")
    assert sys.modules[new.__module__].__spec__ is spec  # the module itself is as it was


def test_every_name_that_is_written_now_had_an_old_one() -> None:
    written = (names.CLIENT_CLASS, names.RUNNER_CLASS, names.LOG_FILTER_CLASS)
    modules = {name.rpartition(".")[0] for name in written} | {names.PLUGIN_MODULE}
    assert set(engine.MOVED.values()) == modules


def test_logging_finds_the_filter() -> None:
    found = logging.config.DictConfigurator({"version": 1}).resolve("eval_factory.engine.log_filter.WithholdText")
    assert found is log_filter.WithholdText


def test_a_name_that_never_was() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"eval_factory\.engine\.other"):
        importlib.import_module("eval_factory.engine.other")


def test_nothing_is_imported_before_it_is_asked_for() -> None:
    finished = subprocess.run(
        [sys.executable, "-c", LOADS_NOTHING], capture_output=True, text=True, timeout=60, check=True
    )
    assert finished.stdout.split() == []
