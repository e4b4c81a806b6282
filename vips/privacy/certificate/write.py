"""The certificate as one HTML file."""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING

from jinja2 import Environment

from vips._pages.engine import environment
from vips._pages.page import write_page
from vips.privacy.certificate.cover import cover_view
from vips.privacy.certificate.declared import Declared
from vips.privacy.certificate.statement import deltas_view, technical_view

if TYPE_CHECKING:
    from vips.privacy.ledger.ledger import PrivacyLedger
    from vips.privacy.report import PrivacyReport

__all__ = ["write_certificate"]

_PARTS = [(__package__, "certificate.css"), (__package__, "certificate.js")]


def write_certificate(
    report: PrivacyReport, path: str | os.PathLike, declared: Declared, ledger: PrivacyLedger | None = None
) -> None:
    """Write the certificate, whole or not at all."""
    write_page(
        path,
        _templates(),
        "certificate.html",
        _PARTS,
        title="Privacy certificate" if report.has_guarantee else "No privacy guarantee",
        cover=cover_view(report, declared, ledger),
        technical=technical_view(report),
        deltas=deltas_view(report),
    )


@cache
def _templates() -> Environment:
    return environment(__package__)
