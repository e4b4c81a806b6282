"""The template engine. It escapes every string that enters a template, unless ``own_markup`` made it.

That function is called for figures that Matplotlib drew from numbers alone (``comparison/report/charts.py``), and for a page's
script and style (page.py). Nothing else in the package turns a string into markup; a test checks this.
"""

from __future__ import annotations

from functools import cache

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from vips._pages.text import at_most, number
from vips._support.printable import printable

__all__ = ["environment", "own_markup"]


@cache
def environment(*packages: str) -> Environment:
    """The engine for the folders ``templates`` of some packages and of this one; the first that has a template gives it.

    A template that uses a name without a value raises ``jinja2.UndefinedError``.
    """
    made = Environment(
        loader=ChoiceLoader([PackageLoader(package, "templates") for package in (*packages, __package__)]),
        autoescape=True,
        finalize=_without_control,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters |= {"number": number, "at_most": at_most}
    return made


def own_markup(text: str) -> Markup:
    """Markup that templates insert unescaped. It must not hold anything from outside."""
    return Markup(text)


def _without_control(value: object) -> object:
    """Strings with control characters (except line ends) as escapes; other values unchanged."""
    is_plain = isinstance(value, str) and not isinstance(value, Markup)
    return "\n".join(printable(line) for line in value.split("\n")) if is_plain else value
