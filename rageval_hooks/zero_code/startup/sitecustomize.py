"""Python imports this module when it starts, if ``rageval-hooks launch`` has put its folder on PYTHONPATH.

Every Python process that the application starts inherits that folder. It may be another Python, without our package, so
this module uses the standard library only. No other file belongs in this folder: the application could import it.
"""

import importlib.machinery
import importlib.util
import os
import sys


def _instrument() -> None:
    try:
        from rageval_hooks.zero_code import instrument_when_needed
    except ImportError as error:
        # For processes that the application starts this is normal. For the application itself it is a mistake.
        if os.environ.get("_RAGEVAL_LAUNCHED") == str(os.getpid()):
            sys.stderr.write(f"rageval-hooks: answers are not evaluated: {error}, in {sys.executable}\n")
        return
    instrument_when_needed()


def _run_the_next_sitecustomize() -> None:
    """Run the ``sitecustomize`` that Python would have found without ours, for example that of the distribution."""
    here = os.path.dirname(os.path.abspath(__file__))
    others = [path for path in sys.path if os.path.abspath(path) != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


_instrument()
_run_the_next_sitecustomize()
