"""The demo: a real chain over a small handbook, instrumented with the one line.

``run`` asks the questions of ``handbook``; ``chain`` is the application.
"""
