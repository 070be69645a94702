"""The offline half: test sets, runs, scores of files, reports and plots."""
