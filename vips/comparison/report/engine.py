"""The template engine. It escapes every string that enters a template, unless ``own_markup`` made it.

That function is called for figures that Matplotlib drew from numbers alone (charts.py), and for the page's script and style
(page.py). Nothing else in the package turns a string into markup; a test checks this.
"""

from __future__ import annotations

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from vips._printable import printable
from vips.comparison.curve import PUBLIC
from vips.comparison.report.text import at_most, number
from vips.comparison.sources import RELEASED

__all__ = ["own_markup", "render"]


def render(template: str, **values: object) -> str:
    """Render a template of the folder ``templates``.

    Raises
    ------
    jinja2.UndefinedError
        If the template uses a name that is not among ``values``.
    """
    return _environment().get_template(template).render(values)


def own_markup(text: str) -> Markup:
    """Markup that templates insert unescaped. It must not hold anything from outside."""
    return Markup(text)


def _without_control(value: object) -> object:
    """Strings with control characters (except line ends) as escapes; other values unchanged."""
    return "\n".join(printable(line) for line in value.split("\n")) if type(value) is str else value


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader(__package__, "templates"),
        autoescape=True,
        finalize=_without_control,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"number": number, "at_most": at_most}
    environment.tests["protected"] = lambda source: source in (RELEASED, PUBLIC)
    return environment
