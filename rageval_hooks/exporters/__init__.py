"""Where evaluations go: one file each."""
