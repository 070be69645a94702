"""What long-running commands share: journal, finished outputs, budget of the judge, bad rows, progress."""
