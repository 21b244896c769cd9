"""pytest in medhelm's environment, which has none: `python in_medhelm.py SITE_PACKAGES ARGUMENTS ...`.

SITE_PACKAGES, of the tests' environment, comes last: HELM and all that it needs are medhelm's.
"""

import os
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:1] = [str(TESTS.parent / "src"), str(TESTS / "support"), str(TESTS), str(TESTS.parent)]
sys.path.append(sys.argv[1])
os.environ["PYTHONPATH"] = str(TESTS.parent / "src")

import pytest  # noqa: E402

from eval_factory.helm_plugin.patches.lighter import replace_missing_torch  # noqa: E402

replace_missing_torch()
sys.exit(pytest.main(sys.argv[2:]))
