"""The site: Markdown pages, what is generated from the program itself, and pictures that the program draws.

Build it: uv run --group docs sphinx-build -W -b html docs docs/_build
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

import gapless  # noqa: E402

project = "gapless"
author = copyright = "the gapless authors"  # noqa: A001
version = release = gapless.__version__
extensions = ["myst_parser", "pictures", "pages"]
exclude_patterns = ["_build"]
myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = "gapless"
html_static_path = ["_static"]
html_css_files = ["gapless.css"]
html_show_sphinx = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True, "top_of_page_buttons": []}
smartquotes = False  # options keep their two hyphens
