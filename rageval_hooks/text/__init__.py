"""What a text says, by rules alone: sentences, words, numbers, dates, facts and citations. No model is needed.

Import each from its module, for example ``from rageval_hooks.text.sentences import sentence_spans``: compiling the
regular expressions of all modules takes a tenth of a second, which importing the package must not cost.
"""
