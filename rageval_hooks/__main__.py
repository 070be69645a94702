"""``python -m rageval_hooks``: the command ``rageval-hooks``, for a Python whose scripts are not on the path."""

from rageval_hooks.cli import main

if __name__ == "__main__":
    main()
