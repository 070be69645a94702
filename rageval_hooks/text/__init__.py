"""What a text says, by rules alone: sentences, words, numbers, dates and facts. The standard library only."""
