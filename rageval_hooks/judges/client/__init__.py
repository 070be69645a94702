"""Calls to a judge: requests, retries, limits, cache and failures.

A judge imports ``remote`` (its base class), ``backend`` (the interface to a client library) and ``policy``. For APIs in
OpenAI's form there are ``chat_completions`` and ``completion``. Packages above import ``admission``, ``policy``,
``prices``, ``redaction`` and ``remote``. The other modules are private. A new step of every call is a file here; what
one provider needs goes into the module of its judge.
"""
