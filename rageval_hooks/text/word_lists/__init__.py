"""English word lists: common words that are not names, and words with opposite meanings."""
