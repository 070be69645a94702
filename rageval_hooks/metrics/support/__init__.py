"""What metrics share: the analysis of a turn, the turn as a judge sees it, batching and planning."""
