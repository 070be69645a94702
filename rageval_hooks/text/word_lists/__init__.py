"""English word lists: common words that are not names, months, and words with opposite meanings.

Other packages may import every module. A new list is a module here, with a text file next to it if it is long; a text
file is read when it is first used. ``scripts/word_lists.py`` makes the text files.
"""
