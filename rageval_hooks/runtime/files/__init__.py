"""Files that this process writes for itself.

``private`` opens files that only their owner can read: use it for every file with texts. ``stats_file`` has the file
that ``rageval-hooks top`` reads. Both are for every layer. Formats of users' files are in
:mod:`rageval_hooks.offline.records.formats`.
"""
