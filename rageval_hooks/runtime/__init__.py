"""Plumbing that no metric author reads: threads, lazy values, ids, suppression, log lines, JSON."""
