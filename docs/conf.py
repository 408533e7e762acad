"""Sphinx settings. The site builds offline and with warnings as errors: ``make docs``."""

import drw_hf

project = "drw_hf"
author = "The drw_hf developers"
release = version = drw_hf.__version__
copyright = "The drw_hf developers"

extensions = ["myst_parser", "numpydoc", "sphinx.ext.autodoc", "sphinx.ext.autosummary"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "results"]

html_theme = "furo"
html_title = "drw_hf"

autodoc_typehints = "none"  # numpydoc shows the types
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
