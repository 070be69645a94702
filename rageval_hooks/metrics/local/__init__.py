"""Metrics that need no judge: formulas and small models on this machine. One module per metric."""
