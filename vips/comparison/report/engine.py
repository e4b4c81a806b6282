"""The templates of the report, with those of the certificate."""

from __future__ import annotations

from functools import cache

from jinja2 import Environment

from vips._pages.engine import environment
from vips.comparison.curve import PUBLIC
from vips.comparison.sources import RELEASED
from vips.privacy import certificate

__all__ = ["render", "templates"]


def render(template: str, **values: object) -> str:
    """Render a template of the folder ``templates``."""
    return templates().get_template(template).render(values)


@cache
def templates() -> Environment:
    """The engine, which also knows whether a source is protected."""
    made = environment(__package__, certificate.__name__)
    made.tests["protected"] = lambda source: source in (RELEASED, PUBLIC)
    return made
