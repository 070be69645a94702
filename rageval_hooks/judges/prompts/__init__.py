"""Prompts and answers of all judges: delimiters, schemas, instructions and parsing. No request is made here.

Metrics and test sets import ``delimiters`` only, to put untrusted texts into their prompts. The other modules are for
judges. A new file is about the form of a prompt or an answer. The prompt of one metric is in the module of the metric.
"""
