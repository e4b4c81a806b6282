"""The command ``certificate check``."""

from __future__ import annotations

import argparse

from vips._support.extras import imported
from vips._support.printable import printable

__all__ = ["add_certificate"]


def add_certificate(commands) -> None:
    """Add the parser of ``certificate``."""
    certificate = commands.add_parser("certificate", help="check a certificate")
    actions = certificate.add_subparsers(required=True, metavar="ACTION")
    check = actions.add_parser(
        "check",
        help="whether a page, the fitted model and the ledger agree",
        description="Check a certificate, the fitted model and the ledger against each other. Ends with 0 if they agree, 1 if "
        "they differ, 2 if one cannot be read.",
    )
    add = check.add_argument
    add("page", help="what `to_html` or `fit --report` wrote")
    add("--model", metavar="FILE", help="what `save` or `fit --save` wrote")
    add("--ledger", metavar="FILE", help="alone where there is no such file: counts, models of one's own")
    check.set_defaults(run=_check)


def _check(options: argparse.Namespace) -> int:
    from vips.saving import load_for_shell

    imported("jinja2", by="certificate check")
    from vips.report.certificate.check import findings

    if options.model is None and options.ledger is None:
        raise ValueError("Name a file to compare the page with: --model, --ledger, or both.")
    report = None if options.model is None else getattr(load_for_shell(options.model)[0], "privacy_", None)
    if options.model is not None and report is None:
        raise ValueError(f"{options.model} holds no privacy statement.")
    results = findings(options.page, report, options.ledger)
    print("\n".join(printable(result) for result in results))
    return int(any(result.is_right is False for result in results))
