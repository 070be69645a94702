"""The demo: a real chain over a small handbook, instrumented with the one line.

``run`` asks the questions of ``handbook``; ``chain`` and ``query_engine`` are the applications, and ``phoenix`` runs a
local server. A further framework, or a further server, is a file next to them.
"""
