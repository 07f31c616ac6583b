"""Sphinx configuration. The pages about formulations and the format are made from the code when the docs are built."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import generate  # noqa: E402

import hetopt  # noqa: E402

project = "hetopt"
author = "The hetopt developers"
copyright = "2026, the hetopt developers"
version = release = hetopt.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "numpydoc", "sphinx.ext.mathjax"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "hetopt"
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
suppress_warnings = ["myst.header", "misc.highlighting_failure"]

generate.pages(HERE / "_generated")
