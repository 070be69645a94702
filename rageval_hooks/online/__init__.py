"""The online path: from a captured turn to its exported evaluation."""
