"""The checks of ``rageval-hooks doctor``: one module each, with a subclass of ``Check``.

The command finds them by themselves, so a new check is a new file. No other module imports them, and they do not import
each other. What several checks need is in ``base`` and ``setup``, in the folder above.
"""
