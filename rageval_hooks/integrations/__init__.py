"""One package per framework: a thin hook that records runs, and a pure ``turn_from_*`` that builds the turn."""
