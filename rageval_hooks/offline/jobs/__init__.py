"""Long-running commands: journal, budget and progress."""
