"""helm-run by hand loads the plug-in only for model files that eval-factory wrote."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

from eval_factory.helm.names import MODEL_DEPLOYMENTS_FILE, PLUGIN_MODULE
from eval_factory.helm_plugin import entry_point

OURS = "- name: m\n  client_spec:\n    class_name: eval_factory.helm_plugin.client.EndpointClient\n"
HELMS = OURS.replace(
    "eval_factory.helm_plugin.client.EndpointClient", "helm.clients.x.OpenAIClient"
)


@pytest.mark.parametrize(
    ("text", "argv", "asks"),
    [
        (OURS, ["--suite", "s"], True),
        (OURS, ["--suite", "s", "--plugins", "mine"], True),
        (OURS, ["--plugins", "mine", PLUGIN_MODULE, "--suite", "s"], False),
        (OURS, ["--local-path=elsewhere"], False),
        (OURS, ["--local-path"], False),
        (HELMS, ["--suite", "s"], False),
        (None, ["--suite", "s"], False),
    ],
)
def test_it_asks_for_the_plugin(
    text: str | None,
    argv: list[str],
    asks: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    if text:
        (tmp_path / "prod_env").mkdir()
        (tmp_path / "prod_env" / MODEL_DEPLOYMENTS_FILE).write_text(text)
    assert entry_point.asks_for_the_plugin(argv) is asks


def test_helm_is_told_where_it_is(root: Path) -> None:
    text = (root / "pyproject.toml").read_text(encoding="utf-8")
    found = re.search(r"\[project\.entry-points\.helm\]\n\w+ = \"(.+)\"", text)
    assert found is not None
    assert import_module(found[1]) is entry_point
