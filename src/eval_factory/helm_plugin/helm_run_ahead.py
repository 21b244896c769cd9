"""helm-run, begun before it is known what it is to run: it has imported HELM when it is told.

What every helm-run imports and registers takes longer than to read a configuration, to check it and to ask an endpoint
one question, and needs nothing of either. From the moment it is told it is a helm-run like any other, with the
arguments and the environment that one would have been started with.
"""

from __future__ import annotations

import importlib
import os
import socket
import sys

from eval_factory.core.garbage import collect_rarely
from eval_factory.core.handed_over import received
from eval_factory.helm_plugin.patches import lazy_imports

NEEDED = tuple(
    f"eval_factory.helm_plugin.{name}"
    for name in ("benchmarks", "network_guard", "parent", "settings_file", "client", "session", "unscorable_answers")
)
"""What the plug-in and the runner import; they themselves look at the environment when they are imported."""
SELDOM_USED = ("ubelt", "pyhocon", "mako", "filelock")
"""What HELM imports at its top, a third of its import, for plug-ins in files, credentials, templates and downloads."""


def main(descriptor: int) -> None:
    """Import, wait, and be helm-run.

    Args:
        descriptor: a socket, on which it is told; where that ends before, nobody wants it any more.
    """
    collect_rarely()
    import_what_every_run_needs()
    with socket.socket(fileno=descriptor) as source:
        told = received(source)
    if told is None:
        os._exit(0)
    told.take()
    from helm.benchmark import run

    run.register_builtin_configs_from_helm_package = _have_been_registered
    sys.argv = ["helm-run", *told.arguments]
    sys.exit(run.main())


def import_what_every_run_needs() -> None:
    """And read HELM's own configurations. Nothing among it looks at the environment, which is not known yet."""
    lazy_imports.defer(SELDOM_USED)
    from helm.benchmark import run

    from eval_factory.helm_plugin.patches.apply import apply_patches
    from eval_factory.helm_plugin.patches.patch_registry import Stage

    apply_patches(Stage.LOGGING)
    run.register_builtin_configs_from_helm_package()
    for name in NEEDED:
        importlib.import_module(name)


def _have_been_registered() -> None:
    """By this process, above."""
