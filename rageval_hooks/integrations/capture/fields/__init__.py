"""What the names of fields say: which one holds the question, the answer or a credential."""
