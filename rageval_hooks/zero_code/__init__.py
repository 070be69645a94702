"""Instruments applications without a line of code in them.

There are two ways: OpenTelemetry's own command, ``opentelemetry-instrument python app.py``, which finds
:class:`~rageval_hooks.zero_code.instrumentor.RagevalInstrumentor` by its entry point; and ``rageval-hooks run-app
python app.py``, which needs no further package. All settings come from the environment.
"""

from rageval_hooks.zero_code.activation import instrument_when_needed

__all__ = ["instrument_when_needed"]
