"""What the names of fields say: which one holds the question, the answer or a credential.

``keys`` is for state and inputs that an application named, ``parameters`` for the parameters of a model call. All
integrations import both. A new file goes here if it reads names for all frameworks. Names that one framework chose are
in the ``payloads`` of its integration.
"""
