"""The README's lines for other programs, run as they stand, on the embedded endpoint."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from eval_factory import api
from programs import ran

ON_THE_EMBEDDED_ENDPOINT = {
    "type: pubmed_qa ": "type: sample_medical_qa ",
    "url: https://api.openai.com/v1 ": "url: demo://baseline ",
}


def test_what_the_readme_shows_for_programs_runs(root: Path, tmp_path: Path) -> None:
    readme = (root / "README.md").read_text("utf-8")
    (config,) = re.findall(
        r"^cat > my_test\.yml << EOF\n(.*?)^EOF\n", readme, re.MULTILINE | re.DOTALL
    )
    for shown, embedded in ON_THE_EMBEDDED_ENDPOINT.items():
        assert shown in config
        config = config.replace(shown, embedded)
    (tmp_path / "my_test.yml").write_text(config, "utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```\n", readme, re.MULTILINE | re.DOTALL)
    finished = ran([sys.executable, "-c", code], tmp_path)
    assert finished.returncode == 0, finished.stderr
    stored = api.load_result(tmp_path / "results" / "my_test").result
    assert stored.validity.instances.requested == 5
    shown = f"{stored.main_metric} {stored.scores[stored.main_metric].value} NOT REPORTABLE: demo"
    assert finished.stdout.startswith(shown)
    assert finished.stderr == ""
    assert "load_result" in code
