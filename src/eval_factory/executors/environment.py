"""The environment of helm-run: an allow-list and the named keys, nothing else."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from eval_factory.core.helm_run_settings import ALL_FILES, WITHOUT
from eval_factory.core.urls import SERVED_AT

ALLOWED = frozenset(
    {
        "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TEMP", "TMP",
        "PYTHONPATH", "PYTHONUTF8", "PYTHONIOENCODING", "VIRTUAL_ENV", "CONDA_PREFIX", "LD_LIBRARY_PATH",
        "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME",
        "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
        "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "no_proxy", "all_proxy",
        "HF_HOME", "HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "HF_DATASETS_CACHE", "HF_HUB_CACHE", "HF_ENDPOINT",
        "HF_TOKEN", "NLTK_DATA", "TIKTOKEN_CACHE_DIR", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS",
        ALL_FILES, "NVCF_STATUS_URL", "OAUTHLIB_INSECURE_TRANSPORT", "SYSTEMROOT",
        WITHOUT, SERVED_AT,
    }
)  # fmt: skip
ALLOWED_PREFIXES = ("LC_",)


def child_environment(env: Mapping[str, str], key_names: Iterable[str], extra: Mapping[str, str]) -> dict[str, str]:
    """What helm-run gets to see of `env`, with `extra` on top.

    HELM calls programs of installed packages by their names (gdown): those of our environment are found too, activated
    or not, after the user's own.
    """
    names = set(key_names)
    kept = {
        name: value
        for name, value in env.items()
        if name in ALLOWED or name in names or name.startswith(ALLOWED_PREFIXES)
    }
    # HELM opens files in the locale's encoding, and what it reads (ours and a user's) is UTF-8.
    path = os.pathsep.join([kept.get("PATH") or os.defpath, str(Path(sys.executable).parent)])
    return {"PYTHONUTF8": "1", **kept, "PATH": path, "PYTHONUNBUFFERED": "1", **extra}
