"""The offline half: from documents to a test set, to answers, to scores, to a report.

In the order of use: ``testsets`` (questions), ``asking`` (run an application), ``scoring``, ``report`` and
``agreement`` (scores against people's labels). ``dataset`` scores data frames, ``ray_engine`` files on a cluster,
``watch`` the traces of a backend. All build on ``records`` (rows and file formats), ``journal`` and ``command_judge``.
"""
