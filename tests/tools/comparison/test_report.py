"""The HTML report is complete, labelled and well-formed, and no text in it is taken for markup."""

import io
import re
import sys
import warnings
from dataclasses import replace
from html.parser import HTMLParser
from unittest.mock import Mock

import matplotlib
import numpy as np
import pandas as pd
import pytest
from dp_accounting.pld import PLDAccountant
from markupsafe import escape

import vips
from tests.plans import with_release
from tests.tools.comparison import report_cases as cases
from vips import PrivacyLedger, compare
from vips._pages.page import at_most
from vips.expfam import DiagonalGaussian, Dirichlet, Gamma
from vips.expfam.divergences import marginals
from vips.tools.comparison import Row
from vips.tools.comparison.charts import curve
from vips.tools.comparison.curve import NO_GUARANTEE
from vips.tools.comparison.page import topics_view

VOID = {"meta", "br", "img", "input", "hr", "link"}
COMPARISONS = ["regression", "released", "topics", "network"]


class Page(HTMLParser):
    """Elements, text without markup, and whether everything that was opened is closed in order."""

    def __init__(self, page):
        super().__init__()
        self.elements, self.words, self.open, self.headings = [], [], [], []
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        assert len(attributes) == len(dict(attributes)), "an attribute occurs twice"
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("script", "style"):
            self.words.append(data)
        if self.open and self.open[-1] in ("h1", "h2"):
            self.headings.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())

    def all(self, tag):
        return [attributes for element, attributes in self.elements if element == tag]


def written(comparison, folder, **more):
    path = folder / "report.html"
    comparison.to_html(path, **more)
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    return {name: written(getattr(cases, name)(), tmp_path_factory.mktemp(name)) for name in COMPARISONS}


@pytest.mark.parametrize("name", COMPARISONS)
def test_is_one_well_formed_file_that_names_no_other_and_can_be_read_aloud(pages, name):
    page = Page(pages[name])
    assert len(pages[name]) < 1e6
    for tag, attributes in page.elements:
        assert tag not in ("link", "iframe", "object", "embed", "base", "foreignobject")
        assert attributes.get("src", "data:image/png;base64,").startswith("data:image/png;base64,")
        assert attributes.get("href", "#").startswith("#")
        assert not any(key.startswith("on") for key in attributes)
    assert "http://" not in pages[name]
    assert "https://" not in pages[name]
    assert len(page.all("script")) == 1
    identities = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(identities) == len(set(identities))
    for _, attributes in page.elements:  # every reference has a target
        for reference in (attributes.get("aria-labelledby"), attributes.get("href", "")[1:]):
            assert not reference or reference in identities
        for reference in re.findall(r"url\(#([^)]+)\)", " ".join(filter(None, attributes.values()))):
            assert reference in identities

    # it can be read aloud
    assert page.all("html")[0]["lang"] == "en"
    assert {"header", "nav", "main", "footer"} <= {tag for tag, _ in page.elements}
    assert page.all("a")[0]["href"] == "#main"
    for attributes in page.all("svg"):
        assert attributes["role"] == "img"
        assert len(attributes["aria-label"]) > 20
    assert all(len(attributes["alt"]) > 20 for attributes in page.all("img"))
    assert all(attributes["scope"] in ("row", "col") for attributes in page.all("th"))
    assert len(page.all("caption")) == len(page.all("table"))
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert max(np.diff(levels)) <= 1


def test_sections_are_those_that_the_model_has(pages):
    common = {"What was fitted", "Privacy statement", "What ε and δ mean", "ε against δ", "Parameters that moved most"}
    headings = {name: set(Page(page).headings) for name, page in pages.items()}
    assert all(common <= titles for titles in headings.values())
    assert "Topics side by side" in headings["topics"]
    assert "Weights side by side" in headings["network"]
    assert not {"Topics side by side", "Weights side by side", "Scores against ε"} & headings["regression"]
    assert len(Page(pages["network"]).all("img")) == 2 * 4
    assert "<table" in pages["topics"].split('id="topics"')[1]


# -- the privacy statement -----------------------------------------------------------------------------------------


def test_the_statement_is_that_of_the_fit(pages):
    page, report = Page(pages["regression"]).text, cases.regression().privacy[0]
    facts = report.to_dict()
    for heading in ("Assumed", "Released", "Public by declaration", "Not covered", "Versions"):
        assert all(item in page for item in facts["statement"][heading])
    assert facts["unit"] in page
    assert "add or remove one" in page
    assert "1e-05 (1 in 100,000 chances to learn more)" in page
    assert "none: no noise was added" in page  # the baseline
    assert "none: no ledger counts this together" in page
    assert "The headings sort" not in page  # only the script adds this


def test_what_epsilon_means_is_said_in_numbers(pages):
    page = Page(pages["regression"]).text
    # ε = 2, δ = 1e-5: e² = 7.389, (e² + δ)/(e² + 1) = 0.88080, odds of 1 to 9 become 7.389 to 9
    assert "e ε = 7.39" in page
    assert "right more often than 88.1 % of the time" in page
    assert re.search(r"10 % 45\.1 %", page)
    assert "finds at most 7.4 % of" in page
    assert "Gaussian differential privacy" in page


@pytest.mark.usefixtures("empty_figures")
def test_a_ledger_a_resumed_fit_and_other_relations_are_told(tmp_path):
    X, y = cases.labelled()
    terms = {"dataset": "<i>salaries", "unit": "one row of X with its label", "relation": "replace_one"}
    ledger = PrivacyLedger(tmp_path / "a.ledger", epsilon=9.0, delta=1e-4, **terms)
    plan = replace(cases.PLAN, relation="replace_one", noise_multiplier=20.0)
    model = vips.BayesianLogisticRegression(privacy=plan, max_norm=1.0).fit(X, y, ledger=ledger)
    page = Page(written(compare(model, cases.logistic(None)), tmp_path)).text
    assert f"charged to '<i>salaries' as run {ledger.runs()[0].run}, 10 steps" in page
    assert (
        "replace one: data sets that differ in the values of one row look alike; how many there are is public" in page
    )
    assert "has its actual values there, or others" in page


@pytest.mark.usefixtures("empty_figures")
def test_fits_without_a_guarantee_are_said_to_have_none_and_without_a_delta_have_the_curve_alone(tmp_path):
    def page_of(**settings):
        return Page(written(compare(cases.logistic(replace(cases.PLAN, **settings)), cases.logistic(None)), tmp_path))

    page = page_of(reproducible_noise=True)
    assert "This fit has no privacy guarantee" in page.text
    assert "sampling and noise come from a seed" in page.text
    assert not {"What ε and δ mean", "ε against δ"} & set(page.headings)
    assert "released" not in set(page.words)  # no number has this label
    private = cases.logistic(cases.PLAN)
    private.privacy_ = with_release(private.privacy_, on_invalid="raise")
    page = Page(written(compare(private, cases.logistic(None)), tmp_path))
    assert "errors depend on single records" in page.text
    assert "the fit stops at a record that cannot be used" in page.text
    page = page_of(report_delta=None)
    assert "What ε and δ mean" not in page.headings
    assert "ε against δ" in page.headings


@pytest.mark.usefixtures("empty_figures")
@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"noise": "discrete"}, "10 steps, every record in each"),
        ({"sampling_rate": 0.5}, "each record in each with probability 0.5, independently"),
        ({"report_delta": 1e-300}, "at δ = 1e-300 (privacy loss distributions)"),
        ({"noise_multiplier": 0.05}, "is hardly any protection"),
    ],
    ids=["discrete", "poisson", "tiny delta", "hardly any noise"],
)
@pytest.mark.repeated("poisson")
def test_every_kind_of_plan_has_a_report(settings, said, tmp_path):
    model = cases.logistic(replace(cases.PLAN, **settings))
    assert said in Page(written(compare(model, cases.logistic(None)), tmp_path)).text


# -- the first page ------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("empty_figures")
def test_the_first_page_is_the_certificate_of_the_private_fit(tmp_path):
    ledger = PrivacyLedger(tmp_path / "a.ledger", epsilon=9.0, delta=1e-4, dataset="salaries")
    filled = {
        "dataset": "salaries 2024", "purpose": "pay gap", "responsible": "HR", "chosen_by": "the board", "reason": "law",
    }  # fmt: skip
    page = Page(written(cases.regression(), tmp_path, ledger=ledger, **filled)).text
    first = page[: page.index("What was fitted")]
    assert all(text in first for text in filled.values())
    assert "BayesianLogisticRegression. Logistic regression" in first
    assert "Guarantee for every single row" in first
    assert "to be filled in by hand" not in first
    assert "The ledger of salaries has counted 0 fits and other releases" in first
    assert "This fit is not in that ledger" in first
    with pytest.raises(TypeError, match="`dataset` must be a text"):
        cases.regression().to_html(tmp_path / "report.html", dataset=None)


@pytest.mark.usefixtures("empty_figures")
def test_all_fits_that_are_shown_are_added_up(tmp_path):
    """Nine fits of a curve and two of the comparison, composed by dp_accounting itself."""
    plans = [replace(cases.PLAN, noise_multiplier=sigma) for sigma in (20.0, 40.0, 80.0) for _ in range(3)]
    curve = replace(cases.PUBLIC_CURVE, reports=tuple(with_release(cases.REPORT, plan=plan) for plan in plans))
    page = Page(written(cases.released(), tmp_path, curve=curve)).text
    shown = float(re.search(r"11 fits with a guarantee are shown here.*? together ε = ([\d.]+) at δ = 1e-05", page)[1])
    theirs = PLDAccountant()
    for plan in [cases.PLAN, cases.PLAN, *plans]:
        theirs.compose(plan.event())
    assert shown == pytest.approx(theirs.get_epsilon(1e-5), rel=0.01)
    assert shown > max(plan.epsilon(1e-5) for plan in plans)


@pytest.mark.usefixtures("empty_figures")
def test_fits_that_cannot_be_added_up_are_named(pages, tmp_path):
    assert "shown here" not in Page(pages["regression"]).text  # one fit with a guarantee
    private = Page(written(cases.regression(), tmp_path, curve=cases.PRIVATE_CURVE)).text
    assert "2 fits with a guarantee are shown here" in private
    assert "Not counted: 1 without a guarantee." in private
    unknown = Page(written(cases.regression(), tmp_path, curve=cases.PUBLIC_CURVE)).text
    assert "Not counted: 4 fits of the curve of scores" in unknown
    curve = replace(cases.PUBLIC_CURVE, reports=(replace(cases.REPORT, unit="all rows of one person"),))
    assert "They protect different units" in Page(written(cases.regression(), tmp_path, curve=curve)).text


@pytest.mark.usefixtures("empty_figures")
def test_one_run_of_a_ledger_counts_once(tmp_path):
    entry = {"dataset": "salaries", "run": "2f", "purpose": ""}
    comparison = replace(cases.released(), notes=("\ud800",))  # half a character does not stop the report
    same = replace(comparison, privacy=tuple(with_release(report, ledger=entry) for report in comparison.privacy))
    assert "shown here" not in Page(written(same, tmp_path)).text
    page = Page(written(comparison, tmp_path))
    assert "2 fits with a guarantee are shown here" in page.text
    assert "\\ud800" in page.words


@pytest.mark.usefixtures("empty_figures")
def test_a_clip_that_can_bias_is_told_before_everything_else(pages, tmp_path):
    comparison, says = cases.regression(), "Clipping can bias the parameters of the private fit"
    assert comparison.clip_biases == (False, False)
    assert "Clipping can bias" not in pages["regression"]
    page = written(replace(comparison, clip_biases=(True, False)), tmp_path)
    assert page.index(says) < page.index("<main")


# -- what may be shown to whom -------------------------------------------------------------------------------------


def test_says_first_whether_it_holds_numbers_that_are_not_protected(pages):
    warning, fine = "This report holds numbers that are not protected", "were computed from released values"
    for name in ("regression", "topics", "network"):
        assert pages[name].index(warning) < pages[name].index("<main")
        assert pages[name].index('class="signature"') < pages[name].index("<aside")  # from which the second page begins
        assert fine not in pages[name]
    assert pages["released"].index(fine) < pages["released"].index("<nav")
    assert warning not in pages["released"]
    assert "private data" not in Page(pages["released"]).words


def test_every_number_of_the_summary_keeps_its_label(pages):
    comparison, page = cases.regression(), pages["regression"]
    body = page.split('id="summary-table"')[1].split("<tbody>")[1].split("</tbody>")[0]
    lines = body.strip().split("</tr>")[:-1]
    for row, line in zip(comparison.rows, lines, strict=True):
        labels = re.findall(r'<span class="source \w+">(.*?)</span>', line)
        expected = [row.private_source, row.baseline_source, row.source]
        assert labels == [source for source in expected if source], row.quantity


def test_columns_of_movers_and_topics_keep_their_labels(pages):
    for name, table, ours in (("regression", "movers", 2), ("topics", "topics", 1)):
        head = pages[name].split(f'id="{table}-table"')[1].split("<thead>")[1].split("</thead>")[0]
        labels = re.findall(r'<span class="source \w+">(.*?)</span>', head)
        assert labels[:ours] == ["released"] * ours
        assert set(labels[ours:]) == {"private data"}


@pytest.mark.usefixtures("empty_figures")
def test_curves_of_scores_are_shown_with_their_label(tmp_path):
    for source in (NO_GUARANTEE, "who knows"):
        page = written(cases.released(), tmp_path, curve=replace(cases.PUBLIC_CURVE, source=source))
        assert "This report holds numbers that are not protected" in page, source
    public = Page(written(cases.released(), tmp_path, curve=cases.PUBLIC_CURVE))
    assert "Scores against ε" in public.headings
    assert "were computed from released values" in public.text
    private = Page(written(cases.released(), tmp_path, curve=cases.PRIVATE_CURVE))
    assert "This report holds numbers that are not protected" in private.text
    assert cases.PRIVATE_CURVE.source in private.words
    assert "without noise" in private.text


# -- names ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["regression", "topics"])
def test_names_are_text(pages, name):
    page = Page(pages[name])
    for hostile in cases.HOSTILE[:4]:
        assert " ".join(hostile.split()) in page.text
    assert "alert(1)</script>" not in pages[name]
    assert "<img src=x" not in pages[name]
    assert "&lt;img src=x" in pages[name]


@pytest.mark.usefixtures("empty_figures")
def test_names_of_images_are_text(tmp_path):
    digits = pd.DataFrame(np.eye(4)[np.arange(200) % 4], columns=cases.HOSTILE[:4])
    models = (
        vips.SigmoidBeliefNetwork(2, privacy=plan, random_state=0).fit(digits.astype(bool))
        for plan in (cases.PLAN, None)
    )
    page = Page(written(compare(*models), tmp_path))
    alternatives = " ".join(attributes["alt"] for attributes in page.all("img"))
    assert any(hostile in alternatives for hostile in cases.HOSTILE)
    assert len(page.all("img")) == 4


def test_dollars_in_names_are_dollars():
    assert cases.HOSTILE[3] in [label.get_text() for label in cases.regression().plot().axes[0].get_yticklabels()]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Matplotlib's font lacks one of the letters
        cases.regression().plot().savefig(io.BytesIO())  # drawing would fail


def test_names_are_never_read_by_tex():
    with matplotlib.rc_context({"text.usetex": True}):
        axes = cases.regression().plot().axes[0]
        curve = replace(cases.PUBLIC_CURVE, source="$x$").plot(axes.figure.add_subplot())
    texts = [*axes.get_yticklabels(), axes.title, curve.title]
    assert not any(text.get_usetex() or text.get_parse_math() for text in texts)


def test_names_do_not_act_on_a_terminal():
    hostile = "\x1b[2J\u202e\n"
    comparison = cases.regression()
    row = replace(comparison.rows[0], quantity=hostile, source=hostile)
    changed = replace(comparison, rows=(row,), notes=(hostile,), model=hostile, private=hostile, baseline=hostile)
    curve = replace(cases.PUBLIC_CURVE, source=hostile)
    said = [str(changed), repr(changed), *map(str, comparison.movers(6)), str(curve)]
    assert all(character.isprintable() or character == "\n" for character in "".join(said))
    assert len(str(changed).splitlines()) == len(str(replace(changed, notes=("note",))).splitlines())
    assert r"\x1b[2J\u202e\n" in str(changed)
    assert r"\u202eevil \x00" in "".join(said)  # the name of a feature


# -- the file ------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("empty_figures")
def test_nothing_is_left_half_written(tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    path.write_text("before")
    full = Mock(side_effect=OSError("disk full"))
    monkeypatch.setattr("vips.persistence.archive.os.fsync", full)
    with pytest.raises(OSError, match="disk full"):
        cases.released().to_html(path)
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]
    assert path.read_text() == "before"
    monkeypatch.undo()
    cases.released().to_html(str(path))
    assert path.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert path.read_text(encoding="utf-8").endswith("</html>\n")
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]


@pytest.mark.parametrize("package", ["matplotlib", "jinja2"])
def test_packages_are_asked_for_before_anything_is_written(package, tmp_path, monkeypatch):
    comparison = cases.released()
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf"{package}: pip install 'vips\[plot\]'"):
        comparison.to_html(tmp_path / "report.html")
    assert not list(tmp_path.iterdir())


def test_a_curve_is_a_curve(tmp_path):
    with pytest.raises(TypeError, match="privacy_utility_curve"):
        cases.released().to_html(tmp_path / "report.html", curve=[0.1, 0.2])
    assert not list(tmp_path.iterdir())


def test_settings_of_the_caller_do_not_matter_and_stay(tmp_path, pages):
    with matplotlib.rc_context({"svg.fonttype": "path", "font.size": 30.0, "text.usetex": True}):
        days = re.compile("<time.*?</time>")  # midnight may pass
        assert days.sub("", written(cases.released(), tmp_path)) == days.sub("", pages["released"])
        assert matplotlib.rcParams["font.size"] == 30.0


# -- pieces --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("probability", "shown"),
    [(0.73106, "73.2 %"), (0.5, "50 %"), (0.9989, "99.9 %"), (0.99901, "100 %"), (1.0, "100 %")],
)
def test_bounds_are_rounded_upwards(probability, shown):
    assert at_most(probability) == shown


def test_numbers_sort_by_value_and_missing_ones_are_said():
    row = Row(quantity="KL", private=-1e-5, value=float("nan"), source="released")
    page = cases.section("numbers", {"level": 0.95, "rows": [row]})
    assert 'data-sort="-1e-05"' in page
    assert '<td class="number" data-sort="" data-head="value">–</td></tr>' in page


@pytest.mark.parametrize(
    "p",
    [DiagonalGaussian([[3.0]], [[4.0]]), Gamma([5.0], [2.0]), Dirichlet([[30.0, 70.0]]), Dirichlet([[70.0, 3.0]])],
    ids=lambda p: type(p).__name__,
)
def test_curves_have_the_mean_and_the_width_of_the_marginal(p):
    x, y = curve(marginals(p) if isinstance(p, DiagonalGaussian) else p)
    density = y if isinstance(p, DiagonalGaussian) else y / x  # the density of x, from that of log x
    mass = np.trapezoid(density, x)
    mean = np.trapezoid(density * x, x) / mass
    assert y.max() == 1.0
    assert mean == pytest.approx(np.ravel(p.mean)[0], rel=1e-3)
    assert np.trapezoid(density * (x - mean) ** 2, x) / mass == pytest.approx(np.ravel(p.var)[0], rel=5e-3)


@pytest.mark.parametrize("shape", [1e-9, 0.02, 1.0, 1e9])
def test_curves_of_vague_and_of_certain_probabilities_are_finite(shape):
    x, y = curve(Dirichlet([[shape, 1e3]]))
    assert np.isfinite([x, y]).all()
    assert ((x > 0.0) & (x <= 1.0)).all()


def test_words_of_both_topics_are_marked():
    comparison = cases.topics()
    section = cases.section("topics", topics_view(comparison))
    assert "<b>" in section
    means = comparison.movements[0].private.distribution.mean
    words = comparison.movements[0].private.columns
    first = f"<bdi>{escape(words[int(np.argmax(means[0]))])}</bdi>"
    row = section.split('<th scope="row">topic 0</th>')[1]
    assert row.removeprefix('<td data-head="private fit">').removeprefix("<b>").startswith(first)
