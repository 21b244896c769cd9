from __future__ import annotations

from pathlib import Path

from eval_factory.helm.names import asked_run_specs


def test_names_on_the_command_line() -> None:
    assert asked_run_specs(["helm-run", "--run-entries", "a:model=x/y", "b", "--suite", "s"]) == {
        "a",
        "b",
    }
    assert asked_run_specs(["helm-run", "-r", "a:x=1", "-m", "5"]) == {"a"}
    assert asked_run_specs(["helm-run", "--conf-paths", "x.conf"]) == set()


def test_names_in_conf_files(tmp_path: Path) -> None:
    hocon = tmp_path / "a.conf"
    ours = tmp_path / "b.conf"
    hocon.write_text('entries: [ # all of them\n  {description: "a:model=text", priority: 1}\n]')
    ours.write_text('{"entries": [{"description": "b"}]}')
    assert asked_run_specs(["helm-run", "--conf-paths", str(hocon), str(ours), "-r", "c:x=1"]) == {
        "a",
        "b",
        "c",
    }
    ours.write_text("{")
    assert asked_run_specs(["helm-run", "-c", str(hocon), str(ours), "-r", "c:x=1"]) == set()
