"""Pages: numbers in words, the template engine, and a page as one file.

The engine escapes every string that enters a template, unless ``own_markup`` made it. That function is called for figures that
Matplotlib drew from numbers alone (``tools/comparison/charts.py``), and for a page's script and style. Nothing else in the
package turns a string into markup; a test checks this.
"""

from __future__ import annotations

import base64
import hashlib
import math
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from importlib import metadata, resources

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from vips._support.files import whole_file
from vips._support.printable import printable

__all__ = ["at_most", "environment", "number", "own_markup", "rendered", "today", "write_page"]


def number(value: float) -> str:
    """A number with four digits; a dash if it is missing."""
    return "–" if math.isnan(value) else f"{value:.4g}".replace("inf", "∞")


def at_most(probability: float) -> str:
    """A bound in per cent, rounded upwards."""
    return f"{math.ceil(1e3 * probability - 1e-9) / 10:g} %"


# -- the engine ----------------------------------------------------------------------------------------------------


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


# -- files ---------------------------------------------------------------------------------------------------------


def write_page(
    path: str | os.PathLike, templates: Environment, template: str, parts: Sequence[tuple[str, str]], **values: object
) -> None:
    """Write what :func:`rendered` gives today, whole or not at all."""
    page = rendered(templates, template, parts, today=today(), **values)
    with whole_file(path) as file:
        file.write(page)


def today() -> str:
    """The date of a page that is written now."""
    return datetime.now(UTC).date().isoformat()


def rendered(
    templates: Environment, template: str, parts: Sequence[tuple[str, str]], *, today: str, **values: object
) -> bytes:
    """Render a template that extends ``shell.html`` with these values.

    ``parts`` are packages and names of style sheets (``.css``) and scripts (``.js``); ``page.css`` comes first by itself.
    """
    style, script = (_joined([(__package__, "page.css"), *parts], ending) for ending in (".css", ".js"))
    page = templates.get_template(template).render(
        policy=_policy(script, style),
        style=own_markup(style),
        script=own_markup(script),
        today=today,
        version=metadata.version("vips"),
        **values,
    )
    return page.encode("utf-8", errors="replace")  # a name may hold an unpaired surrogate


def _joined(parts: Sequence[tuple[str, str]], ending: str) -> str:
    names = [(package, name) for package, name in parts if name.endswith(ending)]
    return "\n".join(resources.files(package).joinpath(name).read_text("utf-8") for package, name in names)


def _policy(script: str, style: str) -> str:
    """The content security policy: no network, and no script or style sheet but ours, even if a name smuggled one in.

    Figures set colours in ``style`` attributes, which are allowed. Browsers that do not know the two directives for styles
    use ``style-src``.
    """
    return "; ".join([
        "default-src 'none'",
        f"script-src '{_hash(script)}'",
        "style-src 'unsafe-inline'",
        f"style-src-elem '{_hash(style)}'",
        "style-src-attr 'unsafe-inline'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
    ])  # fmt: skip


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"
