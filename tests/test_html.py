"""The HTML for notebooks is well-formed and labelled, and no text in it is taken for markup."""

import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest

from tests.plans import entry_of, with_release
from tests.report.test_report import KINDS
from vips import BayesianLogisticRegression, PrivacyPlan, compare
from vips._pages.tables import html_table
from vips.tools.comparison.curve import PRIVATE, UtilityCurve


def texts(shown):
    return " ".join(ET.fromstring(shown).itertext())


def test_all_arguments_are_text():
    hostile = "</td><script>alert(1)</script>\"'&amp;"
    shown = html_table(hostile, (hostile, 1), [(hostile, hostile)], [hostile], prose=True)
    kinds = {element.tag for element in ET.fromstring(shown).iter()}
    assert kinds == {*("div", "table", "caption", "thead", "tbody"), *("tr", "th", "td", "p")}
    assert texts(shown).count(hostile) == 5


@pytest.mark.parametrize("name", KINDS)
def test_privacy_reports(name):
    """Text in a report changes no element and no attribute."""
    hostile = '<meta http-equiv="refresh" content="0;url=http://localhost:9/">'
    report, pages = KINDS[name], []
    for text in ("harmless", hostile):
        changed = replace(
            with_release(
                report, what=text, released=(text,), declared=(text,), mechanism=text, ledger=entry_of(text)
            ),
            unit=text, preprocessing=text, tuning=text, also_not_covered=(text,), versions={text: text}, date=text,
        )  # fmt: skip
        pages.append(ET.fromstring(changed._repr_html_()))
    harmless, attacked = ([(element.tag, element.attrib) for element in page.iter()] for page in pages)
    assert attacked == harmless
    assert hostile in "".join(pages[1].itertext()) or name == "non-private"


def test_curves_say_whether_they_are_private():
    shown = texts(UtilityCurve((0.5, 2.0), 1e-5, np.ones((2, 3)), np.full(3, 2.0), PRIVATE)._repr_html_())
    assert "PRIVATE" in shown
    assert "ε = 0.5" in shown
    assert "not private" in shown


def test_comparisons():
    X = np.random.default_rng(0).uniform(-0.5, 0.5, (500, 2))
    y = (X[:, 0] > 0).astype(int)
    plan = PrivacyPlan(noise_multiplier=5.0, sampling_rate=1.0, n_steps=5)
    private = BayesianLogisticRegression(privacy=plan, max_norm=1.0, prior=1.0).fit(X, y)
    comparison = compare(private, BayesianLogisticRegression(max_norm=1.0, prior=1.0).fit(X, y))
    shown = texts(comparison._repr_html_())
    assert "computed from" in shown
    assert "private data" in shown
