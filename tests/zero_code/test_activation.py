"""Which imports of an application activate the instrumentation."""

from __future__ import annotations

import subprocess
import sys
from pkgutil import iter_modules

from rageval_hooks import integrations
from rageval_hooks.zero_code import modules_to_wait_for


def test_every_integration_of_a_framework_names_the_module_that_activates_it() -> None:
    """What integrations share, ``manual``, and spans of any framework have none."""
    packages = {info.name for info in iter_modules(integrations.__path__) if info.ispkg}

    assert len(modules_to_wait_for()) == len(packages - {"capture", "manual", "opentelemetry"})


def test_the_names_are_found_without_importing_a_framework() -> None:
    """Every Python process of an application reads them."""
    code = (
        "import sys\n"
        "from rageval_hooks.zero_code import modules_to_wait_for\n"
        "assert not set(modules_to_wait_for()) & set(sys.modules), 'imported'\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240, check=False)

    assert done.returncode == 0, done.stderr
