"""The certificate of one fit: complete for every model, honest about ledgers, empty fields seen, every text escaped."""

import re
import sys
from dataclasses import replace

import numpy as np
import pytest
from sklearn.pipeline import Pipeline

from tests.plans import entry_of, with_release
from tests.report.test_report import CALIBRATED, KINDS
from tests.tools.comparison.test_report import Page
from tests.tools.comparison.test_report_injection import HARMLESS, HOSTILE, Skeleton
from vips import BayesianLogisticRegression, DirichletMultinomial, LatentDirichletAllocation, PrivacyLedger, PrivacyPlan
from vips.report.words import success

PLAN = PrivacyPlan.from_epsilon(epsilon=1.0, delta=1e-6, sampling_rate=1.0, n_steps=2)
FIELDS = ("dataset", "purpose", "model", "responsible", "chosen_by", "reason")
BLANK = "to be filled in by hand"


def source(report, folder, **more):
    path = folder / "certificate.html"
    report.to_html(path, **more)
    return path.read_text(encoding="utf-8")


def written(report, folder, **more):
    return Page(source(report, folder, **more))


def counts(**more):
    return DirichletMultinomial(privacy=PLAN).fit(np.eye(3)[np.arange(60) % 3], **more)


@pytest.mark.parametrize("name", KINDS)
def test_the_first_line_says_whether_there_is_a_guarantee(name, tmp_path):
    page = written(KINDS[name], tmp_path)
    if name in ("seeded", "raising", "non-private"):
        assert page.headings[0] == "No privacy guarantee"
        assert page.text.index("This fit has no privacy guarantee:") < page.text.index("Data set")
        assert "Guarantee for every single" not in page.text
        assert "ε =" not in page.text
    else:
        assert page.headings[0] == "Privacy certificate"
        assert "Guarantee for every single" in page.text
        assert "no privacy guarantee" not in page.text
    assert "secure" not in page.text.lower()


def test_every_reason_for_no_guarantee_is_told(tmp_path):
    class OwnPlan(PrivacyPlan):
        pass

    plan = OwnPlan(noise_multiplier=1.0, sampling_rate=0.5, n_steps=3, clip_norm=1.0)
    assert "come from a seed" in written(KINDS["seeded"], tmp_path).text
    assert "errors depend on single records" in written(KINDS["raising"], tmp_path).text
    assert "no noise was added" in written(KINDS["non-private"], tmp_path).text
    assert "the plan is a OwnPlan, a class of its own" in written(with_release(CALIBRATED, plan=plan), tmp_path).text


def test_epsilon_is_said_in_words_and_numbers(tmp_path):
    page = written(CALIBRATED, tmp_path).text
    assert "ε = 1 at δ = 1e-05 (1 in 100,000 chances to learn more)" in page
    assert "right more often than 73.2 % of the time" in page
    assert "What is protected is each letter" in page
    assert "A person with several of these is protected less" in page
    assert all(item in page for item in CALIBRATED.not_covered)
    assert page.count("Signature") == 2  # the heading, and the line


def test_a_fit_of_persons_speaks_of_them(tmp_path):
    import pandas as pd

    ids = pd.Series(np.arange(60) // 3, name="patient_id")
    page = written(counts(groups=ids).privacy_, tmp_path).text
    assert "Guarantee for every single patient" in page
    assert "What is protected is each patient, with all of their rows" in page
    assert "knows all of the data but one patient" in page
    assert "A person with several" not in page


def test_empty_fields_are_seen_and_filled_ones_shown(tmp_path):
    empty = written(CALIBRATED, tmp_path)
    assert empty.text.count(BLANK) == len(FIELDS) + 1  # and the total
    assert sum("blank" in attributes.get("class", "") for attributes in empty.all("span")) == len(FIELDS) + 1 + 4
    filled = written(CALIBRATED, tmp_path, **{name: f"this is the {name}" for name in FIELDS})
    assert all(f"this is the {name}" in filled.text for name in FIELDS)
    assert filled.text.count(BLANK) == 1
    assert written(CALIBRATED, tmp_path, purpose="  \n").text.count(BLANK) == len(FIELDS) + 1


def test_every_field_is_text(tmp_path):
    everything = "".join(HOSTILE)
    for kind in ("calibrated", "seeded", "non-private"):
        skeletons = []
        for put_in in (HARMLESS, everything):
            release = {"what": put_in, "released": (put_in,), "declared": (put_in,), "mechanism": put_in}
            report = with_release(KINDS[kind], ledger=entry_of(put_in), **release)
            report = replace(report, unit=put_in, also_not_covered=(put_in,), tuning=put_in, date=put_in)
            page = source(report, tmp_path, **dict.fromkeys(FIELDS, put_in))
            skeletons.append(Skeleton(page, put_in))
            assert all(record["report"]["tuning"] == put_in for record in skeletons[-1].records)
        harmless, hostile = skeletons
        assert hostile.parts == harmless.parts
        assert hostile.found == harmless.found >= len(FIELDS)


def test_names_of_persons_and_of_ledgers_are_text(tmp_path):
    skeletons = []
    for number, put_in in enumerate((HARMLESS, "".join(HOSTILE).strip())):
        ledger = PrivacyLedger(tmp_path / f"{number}.ledger", 9.0, 1e-5, dataset=put_in, unit=put_in)
        page = source(replace(CALIBRATED, unit=f"all rows of one {put_in}"), tmp_path, ledger=ledger)
        skeletons.append(Skeleton(page, put_in, ledger.head()))
    assert skeletons[0].parts == skeletons[1].parts
    assert skeletons[0].found == skeletons[1].found > 5


# -- the total over all fits -----------------------------------------------------------------------------------------


def test_the_total_is_what_the_ledger_says(tmp_path):
    ledger = PrivacyLedger(tmp_path / "a.ledger", epsilon=5.0, delta=1e-5, dataset="votes 2024")
    uncounted, first = counts(), counts(ledger=ledger)
    alone = f"It uses ε = {ledger.spent():.4g} of that"  # at the ledger's δ, of which it keeps a part
    assert alone in written(first.privacy_, tmp_path, ledger=ledger).text
    counts(ledger=ledger)
    ledger.charge_event("a histogram", unit="one record", relation="add_or_remove", epsilon=0.3)
    page = written(first.privacy_, tmp_path, ledger=ledger).text
    spent = PrivacyLedger.open(ledger.path).spent()
    assert "The ledger of votes 2024 has counted 3 fits and other releases" in page
    assert f"ε = {spent:.4g} of at most 5, at δ = 1e-05" in page
    shown = float(re.search(r"sees all of them is right at most ([\d.]+) %", page)[1])
    assert shown == pytest.approx(100.0 * success(spent, 1e-5), abs=0.1)
    assert "not in that ledger" not in page
    page = written(uncounted.privacy_, tmp_path, ledger=ledger).text
    assert "This fit is not in that ledger, and not in its total." in page
    # without a ledger nothing is claimed
    assert "No ledger counts the fits of this data set." in written(uncounted.privacy_, tmp_path).text
    page = written(first.privacy_, tmp_path).text
    assert "This fit was charged to the ledger of votes 2024" in page
    assert "which was not read for this page" in page
    assert "Data set votes 2024" in page


# -- models, and the file --------------------------------------------------------------------------------------------


def test_an_older_file_is_replaced_by_a_whole_one_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "certificate.html"
    path.write_text("before")
    monkeypatch.setattr("vips._support.files.os.fsync", lambda descriptor: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        CALIBRATED.to_html(path)
    assert path.read_text() == "before"
    monkeypatch.undo()
    CALIBRATED.to_html(str(path))
    assert path.read_text(encoding="utf-8").endswith("</html>\n")
    assert [file.name for file in tmp_path.iterdir()] == ["certificate.html"]


def test_models_have_certificates_which_name_them_with_what_they_find(tmp_path):
    X = np.random.default_rng(0).random((400, 2))
    model = BayesianLogisticRegression(privacy=replace(PLAN, n_steps=5), max_norm=2.0).fit(X, X[:, 0] > 0.5)
    for fitted in (model, LatentDirichletAllocation(2, vocabulary=3, privacy=PLAN).fit(np.eye(3))):
        page = written(fitted.privacy_, tmp_path)
        assert "Privacy certificate" in page.headings
        assert len(page.all("script")) == 1
        assert "http://" not in page.text
    (name, value), *_ = model.findings().items()
    for fitted in (model, Pipeline([("model", model)])):
        text = written(model.privacy_, tmp_path, model=fitted).text
        assert f"BayesianLogisticRegression; {name}: {value:.2g}" in text
    assert "DirichletMultinomial" in written(CALIBRATED, tmp_path, model=counts()).text


def test_wrong_arguments_and_missing_packages_write_nothing(tmp_path, monkeypatch):
    path = tmp_path / "certificate.html"
    with pytest.raises(TypeError, match="`model` must be a text, got list"):
        CALIBRATED.to_html(path, model=[1])
    with pytest.raises(TypeError, match="`purpose` must be a text, got int"):
        CALIBRATED.to_html(path, purpose=3)
    with pytest.raises(TypeError, match="`ledger` must be a PrivacyLedger or None, got str"):
        CALIBRATED.to_html(path, ledger="a.ledger")

    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ImportError, match=r"jinja2: pip install 'vips\[plot\]'"):
        CALIBRATED.to_html(path)
    assert not list(tmp_path.iterdir())
