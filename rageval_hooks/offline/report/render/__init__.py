"""Reports as text, tables, plots and HTML."""
