"""Settings of Sphinx for the documentation site; tools/make_docs calls it."""
import os

project = "linnet"
author = "the authors of linnet"
copyright = "the authors of linnet, MIT licence"
version = release = os.environ["LINNET_VERSION"]
extensions = ["myst_parser"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = f"linnet {release}"
html_show_sphinx = False
html_show_sourcelink = False
html_copy_source = False
html_last_updated_fmt = None
highlight_language = "none"
suppress_warnings = ["misc.highlighting_failure"]  # examples of JSON are cut with ...
