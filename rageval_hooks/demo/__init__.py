"""The demo: a real chain over a small handbook, instrumented with the one line."""
