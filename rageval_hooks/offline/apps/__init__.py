"""Running an application over a test set."""
