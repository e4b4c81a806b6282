"""A page as one file: its script and style sheet, and the policy that forbids all others."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata, resources

from jinja2 import Environment

from vips._pages.engine import own_markup
from vips._support.files import whole_file

__all__ = ["rendered", "today", "write_page"]


def write_page(
    path: str | os.PathLike, templates: Environment, template: str, parts: Sequence[tuple[str, str]], **values: object
) -> None:
    """Write what :func:`rendered` gives today, whole or not at all.

    Raises
    ------
    OSError
        If the file cannot be written; an existing file is then unchanged.
    """
    page = rendered(templates, template, parts, today=today(), **values)
    with whole_file(path) as file:
        file.write(page)


def today() -> str:
    """The date of a page that is written now."""
    return datetime.now(UTC).date().isoformat()


def rendered(
    templates: Environment, template: str, parts: Sequence[tuple[str, str]], *, today: str, **values: object
) -> bytes:
    """Render a template that extends ``shell.html``.

    Parameters
    ----------
    templates : Environment
        From :func:`vips._pages.engine.environment`.
    template : str
    parts : sequence of (str, str)
        Package and name of style sheets (``.css``) and scripts (``.js``); ``page.css`` comes first by itself.
    today : str
    **values
        For the template.
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
