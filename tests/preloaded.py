"""What the processes of tests/warm.py have imported. Importing this module imports it."""

from __future__ import annotations

import gc
from importlib import import_module
from importlib.util import find_spec

_MODULES = (
    "charset_normalizer jinja2 langchain_core.documents langchain_core.runnables langchain_core.tools httpx openai"
    " openai.resources.chat scipy.stats"
    " rageval_hooks.cli rageval_hooks.cli.report rageval_hooks.demo rageval_hooks.guard"
    " rageval_hooks.integrations.langchain.hook rageval_hooks.judges.openai rageval_hooks.offline.scoring.score_file"
    " tests.integrations.langchain.fakes"
).split()

# While modules are imported there is no garbage. Forks share what is frozen, and their collections skip it.
gc.disable()
for _name in _MODULES:
    if find_spec(_name.split(".")[0]) is not None:
        import_module(_name)
gc.freeze()
gc.enable()
