from __future__ import annotations

import sys
from pathlib import Path

import pytest

from eval_factory.helm.programs import Program, only_calls_main

OF_PIP = """#!/some/where/bin/python
# -*- coding: utf-8 -*-
import re
import sys
from helm.benchmark.run import main
if __name__ == '__main__':
    sys.argv[0] = re.sub(r'(-script\\.pyw|\\.exe)?$', '', sys.argv[0])
    sys.exit(main())
"""
OF_UV = """#!/some/where/bin/python
# -*- coding: utf-8 -*-
import sys
from helm.benchmark.run import main
if __name__ == "__main__":
    if sys.argv[0].endswith("-script.pyw"):
        sys.argv[0] = sys.argv[0][:-11]
    elif sys.argv[0].endswith(".exe"):
        sys.argv[0] = sys.argv[0][:-4]
    sys.exit(main())
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (OF_PIP, True),
        (OF_UV, True),
        (OF_PIP.replace("benchmark.run ", "benchmark.server "), False),
        (OF_PIP.replace("from helm", "# from helm"), False),
        (OF_PIP.replace("    sys.exit", "    first()\n    sys.exit"), False),
        (OF_PIP.replace("import re", "import re, own"), False),
        (OF_UV.replace('endswith(".exe")', "endswith(own())"), False),
        ("#!/bin/sh\nexec python -m helm.benchmark.run\n", False),
    ],
)
def test_a_script_with_more_in_it_is_somebodys_own(text: str, expected: bool, tmp_path: Path) -> None:
    script = tmp_path / "helm-run"
    script.write_text(text)
    assert only_calls_main(Program([str(script)])) is expected


def test_a_script_that_cannot_be_read(tmp_path: Path) -> None:
    assert not only_calls_main(Program([str(tmp_path / "helm-run")]))
    (tmp_path / "helm-run").write_bytes(b"\x7fELF\xff")
    assert not only_calls_main(Program([str(tmp_path / "helm-run")]))
    assert only_calls_main(Program([sys.executable, "-m", "helm.benchmark.run"]))
