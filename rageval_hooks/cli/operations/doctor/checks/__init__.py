"""The checks of ``rageval-hooks doctor``, one module each. The command finds them by themselves."""
