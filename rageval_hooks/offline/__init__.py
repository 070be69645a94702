"""The offline half: from documents to a test set, to answers, to scores, to a report.

In the order of use: ``testsets`` (questions), ``apps`` (run an application), ``scoring``, ``report`` and ``agreement``
(scores against people's labels). ``dataset`` scores data frames, ``ray_engine`` files on a cluster. All build on
``records`` (rows and file formats) and ``jobs`` (journal, budget, progress). Commands and ``evaluation`` import from
all of them. A new step is a new package. The modules in this folder itself are small helpers of several packages.
"""
