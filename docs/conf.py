import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import pictures

import vips

project = "vips"
author = "the vips developers"
copyright = "2026, the vips developers"
release = vips.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon"]
html_theme = "furo"
pygments_dark_style = "github-dark"
html_title = "vips"
html_static_path = ["_static"]
html_extra_path = ["pictures/extra"]
html_css_files = ["site.css"]
html_js_files = [("site.js", {"defer": "defer"})]
html_show_sphinx = False
templates_path = ["_templates"]
autosummary_generate = True
napoleon_use_ivar = True
napoleon_use_param = False
napoleon_use_rtype = False
napoleon_google_docstring = False
napoleon_custom_sections = ["Privacy", "Guarantees"]
autodoc_typehints = "none"
strip_signature_backslash = True  # names that end in _ keep it in lists of attributes
exclude_patterns = ["_build", "pictures"]
suppress_warnings = ["myst.header"]
myst_heading_anchors = 3


def is_of_others(app, what, name, member, skip, options):
    """What models inherit from scikit-learn is documented there."""
    module = getattr(member, "__module__", None) or ""
    return skip or module.startswith("sklearn.") or (name.startswith("set_") and name.endswith("_request")) or None


def as_words(app, what, name, obj, options, lines):
    """The first line of a property is no "type: description", for which napoleon takes it if it has a colon."""
    found = [i for i, line in enumerate(lines) if line.startswith(":type: ")]
    if what == "property" and found:
        lines[:] = [f"{lines[found[0]].removeprefix(':type: ')}: {lines[0]}", *lines[1 : found[0]]]


def without_references(app, what, name, obj, options, lines):
    """Types of attributes are words, and several names in one line are names: Sphinx would look for each as a class."""
    for i, line in enumerate(lines):
        field, _, rest = line.partition(": ")
        if field.startswith(":vartype ") and rest and not set(rest) & set("*`"):
            lines[i] = f"{field}: *{rest}*"
        elif field.startswith(":ivar "):
            lines[i] = line.replace(field, ":ivar " + field.removeprefix(":ivar ").replace(", ", ","), 1)


def with_plain_types(app, what, name, obj, options, signature, returns):
    """Types that are defaults, by their names."""
    return re.sub(r"<class '([\w.]+)'>", r"\1", signature or "") or signature, returns


def with_levels(app, name, template, context, doctree):
    """Captions in the sidebar are headings, to which Sphinx gives no level."""
    tree = context["furo_navigation_tree"]
    context["furo_navigation_tree"] = tree.replace(' role="heading"', ' role="heading" aria-level="2"')


def setup(app):
    app.connect("autodoc-skip-member", is_of_others)
    app.connect("autodoc-process-docstring", as_words, priority=900)  # after napoleon
    app.connect("autodoc-process-docstring", without_references, priority=901)
    app.connect("autodoc-process-signature", with_plain_types)
    app.connect("html-page-context", with_levels, priority=900)  # after the theme has made the sidebar
    app.connect("config-inited", lambda app, config: pictures.draw_all(Path(app.srcdir)))
    app.connect("source-read", lambda app, name, source: source.__setitem__(0, pictures.as_shown(source[0])))
