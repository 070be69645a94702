"""Calls to a judge: requests, retries, limits, cache and failures."""
