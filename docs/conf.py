import vips

project = "vips"
author = "the vips developers"
copyright = "2026, the vips developers"
release = vips.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon"]
html_theme = "furo"
autosummary_generate = True
napoleon_google_docstring = False
napoleon_custom_sections = ["Privacy", "Guarantees"]
autodoc_typehints = "none"
exclude_patterns = ["_build"]
suppress_warnings = ["myst.header", "myst.xref_missing"]
myst_heading_anchors = 3
