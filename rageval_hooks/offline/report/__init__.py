"""Reports on scored files: statistics, comparison and gates."""
