"""Metrics that ask a judge. One module per metric; a part that only one metric uses is a module next to it."""
