"""Running an application over a test set: loading it, asking it, and keeping its answers as records."""
