"""Files that only their owner can read."""
