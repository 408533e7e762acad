"""Sphinx settings. The site builds offline and with warnings as errors: ``make docs``."""

from docutils.nodes import SkipNode
from docutils.utils.math.latex2mathml import tex2mathml

import drw_hf

project = "drw_hf"
author = "The drw_hf developers"
release = version = drw_hf.__version__
copyright = "The drw_hf developers"

extensions = ["myst_parser", "numpydoc", "sphinx.ext.autodoc", "sphinx.ext.autosummary"]
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "results"]

html_theme = "furo"
html_title = "drw_hf"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_math_renderer = "mathml"

autodoc_typehints = "none"  # numpydoc shows the types
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False


def setup(app):
    """Equations as MathML, which browsers draw themselves; MathJax would be fetched from the network."""

    def inline(translator, node):
        translator.body.append(tex2mathml(node.astext(), as_block=False))
        raise SkipNode

    def block(translator, node):
        translator.body.append(tex2mathml(node.astext(), as_block=True))
        raise SkipNode

    app.add_html_math_renderer("mathml", inline_renderers=(inline, None), block_renderers=(block, None))
