"""The demo: a real chain over a small handbook, instrumented with the one line.

The commands import ``run``, which asks the questions, and ``handbook``, which has the documents and questions.
``chain`` and ``query_engine`` are the applications. A further framework is a file next to them. A further local server
is a file next to ``phoenix``.
"""
