"""The lab: a local page on which stream programs are played, changed, and timelines explained.

``serving.py`` serves it, ``app.py`` answers, ``worker.py`` works out what is asked in a process of its own, ``web/`` is
the page. The model runs here, in Python; the page only shows what it is told.
"""
