"""``python -m vips certificate check``: page, fitted model and ledger, and whoever alters one of them."""

import contextlib
import json
import shlex
import shutil
from dataclasses import replace
from html import escape, unescape
from inspect import signature

import numpy as np
import pandas as pd
import pytest

import vips
from tests.core.ledger.forgery import rewrite, sql
from tests.persistence.damage import edited
from tests.plans import with_release
from tests.preprocessing.test_private_topics import letters
from tests.report.test_report import KINDS
from vips import (
    DirichletMultinomial,
    PrivacyBudget,
    PrivacyLedger,
    PrivacyPlan,
    PrivacyReport,
    PrivateClassifier,
    StreamPlan,
    count_records,
)
from vips.__main__ import main
from vips.core.ledger import chain_file
from vips.core.ledger.reader import book_as_of
from vips.core.phases import FitPhase
from vips.models import BayesianLogisticRegression
from vips.persistence.archive import read_archive
from vips.persistence.checkpoint import Journal
from vips.preprocessing import TableEncoder, make_private_pipeline
from vips.report.certificate import check as check_module
from vips.report.certificate import page as page_module

X = np.eye(3)[np.arange(60) % 3]
TABLE = pd.DataFrame({"age": np.arange(60.0), "town": ["A", "B", "C"] * 20})
LABELS = (TABLE["age"] > 30).to_numpy().astype(int)
SPENDS = {"epsilon": 1.0, "delta": 1e-6}
BUDGET = PrivacyBudget(**SPENDS)
COLUMNS = {"age": "number", "town": "category"}


def counts(ledger=None, weights=None, **plan):
    settings = {"noise_multiplier": 20.0, "sampling": "full", "n_steps": 2, "report_delta": 1e-6} | plan
    return DirichletMultinomial(privacy=PrivacyPlan(**settings)).fit(X, ledger=ledger, sample_weight=weights)


def sampled(ledger):
    return counts(ledger, np.ones(60), max_weight=2.0, sampling="poisson", sampling_rate=0.3, noise_multiplier=4.0)


def encoder(ledger):
    return TableEncoder(COLUMNS, privacy=BUDGET).fit(TABLE, ledger=ledger)


def pipeline(ledger):
    model = BayesianLogisticRegression(classes=[0, 1])
    made = make_private_pipeline(TableEncoder(COLUMNS), model, privacy=BUDGET, max_weight=2.0)
    return made.fit(TABLE, LABELS, ledger=ledger, sample_weight=np.ones(60))


def classifier(ledger):
    return PrivateClassifier(COLUMNS, classes=[0, 1], privacy=BUDGET).fit(TABLE, LABELS, ledger=ledger)


def stream(ledger):
    model = DirichletMultinomial(privacy=StreamPlan(**SPENDS, n_batches=4))
    return model.partial_fit(X, ledger=ledger).partial_fit(X, ledger=ledger)


def in_phases(ledger):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DirichletMultinomial, "phases", phases)
        return counts(ledger)


def phases(model, n_steps):
    return FitPhase("first", 1, 1.5), FitPhase("others", n_steps - 1, 0.5)


def interrupted(ledger):
    """A fit whose second step was released twice."""
    commit = Journal.commit

    def stop(journal, step, *arguments):
        if step == 2:
            raise KeyboardInterrupt
        commit(journal, step, *arguments)

    plan = PrivacyPlan(noise_multiplier=20.0, sampling="full", n_steps=3, report_delta=1e-6)
    model, checkpoint = DirichletMultinomial(privacy=plan), f"fit{len(ledger.runs())}.vips"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Journal, "commit", stop)
        with pytest.raises(KeyboardInterrupt):
            model.fit(X, ledger=ledger, checkpoint=checkpoint)
    model.fit(X, ledger=ledger, checkpoint=checkpoint)
    assert model.privacy_.releases[0].repeated_steps == 1
    return model


FITTED = [counts, sampled, in_phases, interrupted, encoder, pipeline, classifier, stream]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A model, and a folder of its page, its file, an older ledger and one that goes on."""
    folder = tmp_path_factory.mktemp("made")
    with contextlib.chdir(folder):
        ledger = PrivacyLedger("a.ledger", 8.0, 1e-5, "votes", purpose="turnout")
        counts(ledger)
        shutil.copy("a.ledger", "older.ledger")
        model = counts(ledger)
        model.save("model.vips")
        model.privacy_.to_html("page.html", ledger=ledger, responsible="an office")
        counts(ledger)
    return model, folder


@pytest.fixture
def fitted(made, folder):
    """The model, with a copy of its files."""
    shutil.copytree(made[1], folder, dirs_exist_ok=True)
    return made[0]


def check(capsys, page="page.html", model="model.vips", ledger="a.ledger"):
    """Status and output."""
    files = (("--model", model), ("--ledger", ledger))
    named = [word for option, file in files if file is not None for word in (option, file)]
    status = main(["certificate", "check", page, *named])
    return status, "".join(capsys.readouterr())


def refused(capsys, *said, **files):
    status, output = check(capsys, **files)
    differs = [line for line in output.splitlines() if line.startswith("differs")]
    assert status == 1
    assert all(any(text in line for line in differs) for text in said), output
    return differs


@pytest.mark.parametrize("fit", FITTED, ids=lambda fit: fit.__name__)
def test_what_belongs_together_agrees(fit, folder, capsys):
    ledger = PrivacyLedger("a.ledger", 100.0, 1e-5, "votes")
    counts(ledger)
    model = fit(ledger)
    model.save("model.vips")
    model.privacy_.to_html("page.html", ledger=ledger)
    status, output = check(capsys)
    assert status == 0, output
    assert not [line for line in output.splitlines() if not line.startswith("ok")]
    assert output.count("cost of entry") == len(model.privacy_.runs)
    assert output.count("fingerprint of the") == len(model.privacy_.releases)
    page = (folder / "page.html").read_text(encoding="utf-8")
    assert all(release.sha256 in page.split("<main", 1)[1] for release in model.privacy_.releases)
    again = fit(ledger)
    again.save("again.vips")
    other = "runs: the page says" if fit is encoder else f"fingerprint of the {model.privacy_.releases[-1].what}"
    refused(capsys, other, model="again.vips")  # two encoders may learn the same


@pytest.mark.slow
def test_topics_from_the_shell(folder, capsys):
    (folder / "letters").mkdir()
    for number, text in enumerate(letters()):
        (folder / "letters" / f"{number:04d}.txt").write_text(text)
    assert main(shlex.split("ledger create a.ledger --dataset letters --epsilon 9 --delta 1e-5")) == 0
    line = "fit letters --model topics --epsilon 4 --delta 1e-6 --ledger a.ledger --save model.vips --report page.html"
    assert main([*shlex.split(line), "--purpose", "a thesis"]) == 0
    capsys.readouterr()
    status, output = check(capsys)
    assert status == 0, output
    assert "purpose of entry" in output


def test_a_count_has_no_file_and_is_checked_by_the_ledger(folder, capsys):
    ledger = PrivacyLedger("a.ledger", 8.0, 1e-5, "votes")
    count_records(X, privacy=BUDGET, ledger=ledger).privacy.to_html("page.html", ledger=ledger)
    status, output = check(capsys, model=None)
    assert (status, "note    model: not read" in output, "ok      cost of entry" in output) == (0, True, True), output
    status, output = check(capsys, model=None, ledger=None)
    assert (status, "--model, --ledger, or both" in output) == (2, True)


@pytest.mark.parametrize(("what", "theirs"), [("purpose", "turnout"), ("dataset", "votes")])
def test_a_title_that_is_not_the_ledgers_is_told(what, theirs, fitted, capsys):
    fitted.privacy_.to_html("page.html", ledger=PrivacyLedger.open("a.ledger"), **{what: "marketing"})
    refused(capsys, f"{what} in the title: the page says marketing, the ledger says {theirs}")


def test_the_ledger_may_go_on_and_people_may_say_more(fitted, capsys):
    report = replace(fitted.privacy_, tuning="on public votes")
    report.to_html("said.html", ledger=PrivacyLedger.open("a.ledger"), reason="a «reason» & more\n</body>")
    counts(PrivacyLedger.open("a.ledger"))
    status, output = check(capsys, "said.html")
    assert status == 0, output
    assert "note    tuning, stated by people: the page says on public votes, the model says not stated" in output
    assert "ok      total: " in output
    assert "by 3 releases when the page was written; 1 more since then, ε = " in output


def test_without_a_ledger_the_total_is_not_called_right_and_line_ends_of_windows_change_nothing(fitted, folder, capsys):
    status, output = check(capsys, ledger=None)
    assert status == 0
    assert "note    ledger: not read" in output
    assert "total" not in output
    page = folder / "page.html"
    page.write_bytes(b"\xef\xbb\xbf" + page.read_bytes().replace(b"\n", b"\r\n"))
    status, output = check(capsys)
    assert status == 0, output


ALTERED = {
    "epsilon": ("ε = 0.274<", "ε = 0.174<"), "delta": ("at δ = 1e-06", "at δ = 1e-07"),
    "total": ("of at most 8", "of at most 9"), "fingerprint": ("SHA-256 ", "SHA-256 0"),
    "not covered": ("<li><bdi>ordinary fits", "<li><bdi>no ordinary fits"),
    "person": ("an office", "another office"), "style": ("</style>", ".promise { display: none }</style>"),
    "behind the end": ("</html>", "</html><h1>no noise was needed</h1>"),
}  # fmt: skip


@pytest.mark.parametrize("place", ALTERED)
def test_what_people_read_cannot_be_altered(place, fitted, folder, capsys):
    page = (folder / "page.html").read_text(encoding="utf-8")
    head, text = page.split("<main", 1)
    old, new = ALTERED[place]
    altered = f"{head}<main{text.replace(old, new, 1)}" if old in text else page.replace(old, new, 1)
    assert altered != page
    (folder / "page.html").write_text(altered, encoding="utf-8")
    (line,) = refused(capsys, "text: the page says")
    assert new.strip("</")[:8] in line or place in ("style", "fingerprint")


def test_bytes_that_are_no_text_are_told(folder, capsys):
    model = counts()
    model.save("model.vips")
    model.privacy_.to_html("page.html", reason="a \ufffd in a text")
    assert check(capsys, ledger=None)[0] == 0
    page = (folder / "page.html").read_bytes()
    (folder / "page.html").write_bytes(page.replace("\ufffd".encode(), b"\xff"))
    refused(capsys, "text: the page says", ledger=None)


def facts(page):
    return json.loads(unescape(page.split('data-record="', 1)[1].split('"', 1)[0]))


def forged(folder, alter):
    """Another page.html, whose facts were altered and written as vips writes them."""
    held = facts((folder / "page.html").read_text(encoding="utf-8"))
    alter(held)
    report = PrivacyReport.from_json(held["report"])
    page = page_module.certificate(report, held["ledger"], held["stated"], held["date"])
    (folder / "page.html").write_bytes(page)


FORGED = {
    "noise": (lambda held: held["report"]["releases"][0]["plan"].update(noise_multiplier=40.0),
              ["guarantee: the page says ε = 0.13", "plan of the fit", "cost of entry"]),
    "delta": (lambda held: held["report"]["releases"][0]["plan"].update(report_delta=1e-9), ["guarantee: "]),
    "unit": (lambda held: held["report"].update(unit="all rows of one person"), ["unit: the page says all rows"]),
    "date": (lambda held: held["report"].update(date="2020-01-01"), ["date of the fit: the page says 2020"]),
    "declared": (lambda held: held["report"]["releases"][0].update(declared=["everything"]), ["declared of the fit"]),
    "run": (lambda held: held["report"]["releases"][0]["ledger"].update(run="2f"), ["runs: the page says 2f", "entry 2f"]),
    "purpose": (lambda held: held["report"]["releases"][0]["ledger"].update(purpose="art"), ["purpose of entry"]),
    "data set": (lambda held: held["report"]["releases"][0]["ledger"].update(dataset="art"), ["data set of entry"]),
    "fingerprint": (lambda held: held["report"]["releases"][0].update(sha256="0" * 64), ["fingerprint of the fit: the page"]),
    "no fingerprint": (lambda held: held["report"]["releases"][0].update(sha256=""), ["fit: the page says none"]),
    "total": (lambda held: held["ledger"].update(total=0.1), ["total: total: the page says 0.1"]),
    "entries": (lambda held: held["ledger"].update(n_runs=1), ["total: n_runs: the page says 1"]),
    "head": (lambda held: held["ledger"].update(head=f"1:{'0' * 64}"), ["does not contain the head"]),
    "repeated": (lambda held: held["report"]["releases"][0].update(repeated_steps=1), ["steps beyond the plan: 1 on the page"]),
}  # fmt: skip


@pytest.mark.parametrize("field", FORGED)
def test_facts_cannot_be_forged(field, fitted, folder, capsys):
    alter, said = FORGED[field]
    forged(folder, alter)
    differs = refused(capsys, *said)
    assert not any(line.startswith("differs text") for line in differs)


def test_facts_that_do_not_belong_to_the_text_are_told(fitted, folder, capsys):
    page = (folder / "page.html").read_text(encoding="utf-8")
    held = facts(page)
    before = escape(json.dumps(held))
    held["report"]["releases"][0]["plan"]["noise_multiplier"] = 2.0
    mixed = page.replace(before.replace("&quot;", "&#34;"), escape(json.dumps(held)))
    assert mixed != page
    (folder / "page.html").write_text(mixed, encoding="utf-8")
    refused(capsys, "text: the page says", "guarantee: ")


def test_more_may_be_not_covered_and_not_less_and_a_page_that_no_ledger_counts_is_told(folder, capsys):
    model, told = counts(), ("rows with a line break in a cell", "telegrams")
    model.privacy_ = replace(model.privacy_, also_not_covered=told)
    model.save("model.vips")
    for items, status in (((*told, "letters to the editor"), 0), (told[1:], 1)):
        replace(model.privacy_, also_not_covered=items).to_html("page.html")
        assert check(capsys, ledger=None)[0] == status
    refused(capsys, f"not covered: the page lacks {told[0]}", ledger=None)
    PrivacyLedger("a.ledger", 8.0, 1e-5, "votes")
    refused(capsys, "entry: the page names none")


def test_a_ledger_without_the_entry_or_an_older_copy_is_told(fitted, capsys):
    run = fitted.privacy_.runs[0]
    PrivacyLedger("new.ledger", 8.0, 1e-5, "votes")
    for name in ("older.ledger", "new.ledger"):
        said = f"entry {run}: The ledger of 'votes' knows of no run"
        refused(capsys, "does not contain the head", said, ledger=name)


def test_an_edited_ledger_is_told(fitted, capsys):
    sql("a.ledger", "UPDATE entries SET body = replace(body, 'turnout', 'turnups') WHERE number = 4")
    refused(capsys, "ledger: ", "has been edited")


def test_an_entry_that_was_written_for_less_is_told(fitted, capsys):
    """Its hashes fit: somebody made a ledger for the page."""

    def for_less(number, text):
        body = json.loads(text)
        if body["kind"] == "charge" and body["run"] == fitted.privacy_.runs[0]:
            body["cost"][0] /= 4.0
        return chain_file._canonical(body)

    rewrite("a.ledger", for_less)
    refused(capsys, "cost of entry", "does not contain the head")


def test_another_file_is_told(fitted, folder, capsys):
    for name in read_archive("model.vips", "model")[1]:

        def change(header, arrays, name=name):
            arrays[name] = np.nextafter(arrays[name], np.inf)

        edited("model.vips", "model", change, to="changed.vips")
        refused(capsys, "fingerprint of the fit", model="changed.vips")


def test_the_model_of_a_pipeline_is_not_the_pipeline(folder, capsys):
    whole = pipeline(None)
    whole.save("whole.vips")
    whole[-1].save("model.vips")
    whole.privacy_.to_html("page.html")
    assert check(capsys, model="whole.vips", ledger=None)[0] == 0
    refused(capsys, "fingerprint of the encoder: ", "save the whole", ledger=None)


@pytest.mark.parametrize(
    "page",
    ["", "<html><body>", '<body data-record="">', '<body data-record="7">', '<body data-record="[]">',
     f'<body data-record="{"[" * 100_000}">', '<body data-record="{}">', "\0" * 1000, "<body data-record>"],
    ids=range(9),
)  # fmt: skip
def test_what_is_no_certificate_is_said_in_words(page, fitted, folder, capsys):
    (folder / "page.html").write_text(page)
    status, output = check(capsys)
    assert status == 2
    assert output.startswith("ValueError: page.html is no")
    assert len(output) < 500


@pytest.mark.parametrize("name", ["vips", "date", "stated", "report", "ledger"])
@pytest.mark.parametrize("value", [None, 7, [], {}, {"a": 1}, "x", {"dataset": ["<b>"]}, 10**400])
def test_forged_facts_of_any_type_end_in_words(name, value, fitted, folder, capsys):
    page = (folder / "page.html").read_text(encoding="utf-8")
    old = page.split('data-record="', 1)[1].split('"', 1)[0]
    (folder / "page.html").write_text(
        page.replace(old, escape(json.dumps(facts(page) | {name: value}))), encoding="utf-8"
    )
    status, output = check(capsys)
    assert status in (1, 2)
    assert "page.html is not a certificate" in output or "differs" in output


def test_unreadable_files_and_pages_without_a_guarantee(fitted, folder, capsys):
    for files, said in (
        ({"page": "none.html"}, "none.html"),
        ({"page": "."}, "is a directory"),
        ({"model": "page.html"}, "is not a file of vips"),
        ({"ledger": "none.ledger"}, "There is no file 'none.ledger'"),
    ):
        status, output = check(capsys, **files)
        assert status == 2
        assert said.lower() in output.lower()
    KINDS["non-private"].to_html("page.html")
    status, output = check(capsys)
    assert status == 2
    assert "no certificate of a fit with a guarantee" in output
    fitted.privacy_.to_html("again.html", ledger=PrivacyLedger.open("a.ledger"))
    refused(capsys, "ledger: ", ledger="model.vips", page="again.html")

    class OwnPlan(PrivacyPlan):  # has nothing to check
        pass

    plan = OwnPlan(noise_multiplier=1.0, sampling_rate=0.5, n_steps=3, clip_norm=1.0)
    with_release(KINDS["calibrated"], plan=plan).to_html("page.html")
    assert "data-record" not in (folder / "page.html").read_text(encoding="utf-8")


def test_a_page_of_another_version_says_so(fitted, folder, capsys, monkeypatch):
    monkeypatch.setattr("vips.report.certificate.check.metadata.version", lambda name: "9.9")
    refused(capsys, "and this is 9.9")


def _unchecked(chain, known=0, *_):
    select = "SELECT number, body, hash FROM entries WHERE number >= ? ORDER BY number"
    return [(number, json.loads(body), digest) for number, body, digest in chain._connection.execute(select, (known,))]


CHECK = "vips.report.certificate.check."
MUTANTS = {
    "the text is not read": (f"{CHECK}_text", lambda page: _right(), test_what_people_read_cannot_be_altered, "epsilon"),
    "the file's fingerprint is believed": (f"{CHECK}_fingerprint", lambda *_: _right(), test_another_file_is_told),
    "fields are not compared": (f"{CHECK}_differing", lambda *_: iter(()), test_facts_cannot_be_forged, "declared"),
    "numbers are not compared": (f"{CHECK}_compared", lambda *_: _right(), test_facts_cannot_be_forged, "unit"),
    "the total is believed": (f"{CHECK}_total", lambda *_: _right(), test_facts_cannot_be_forged, "total"),
    "costs are close": (f"{CHECK}_is_close", lambda *_: True, test_an_entry_that_was_written_for_less_is_told),
    "hashes are not checked": ("vips.core.ledger.chain_file.Chain.read", _unchecked, test_an_edited_ledger_is_told),
    "any head is the ledger's": (
        "vips.report.certificate.page.book_as_of", lambda ledger, head=None: book_as_of(ledger),
        test_a_ledger_without_the_entry_or_an_older_copy_is_told,
    ),
}  # fmt: skip


def _right():
    return check_module.Finding(True, "", "")


@pytest.mark.parametrize("name", MUTANTS)
def test_broken_checks_are_noticed(name, fitted, folder, capsys, monkeypatch):
    target, broken, test, *arguments = MUTANTS[name]
    monkeypatch.setattr(target, broken)
    fixtures = {"fitted": fitted, "folder": folder, "capsys": capsys}
    taken = [fixtures[name] for name in signature(test).parameters if name in fixtures]
    with pytest.raises((AssertionError, ValueError)):
        test(*arguments, *taken)


def test_what_a_sampled_entry_costs_depends_on_what_was_left(folder, capsys, monkeypatch):
    monkeypatch.setattr("vips.report.certificate.check.book_before", lambda ledger, run: book_as_of(ledger))
    with pytest.raises(AssertionError, match="cost of entry"):
        test_what_belongs_together_agrees(sampled, folder, capsys)


def test_a_fingerprint_is_of_names_types_shapes_and_numbers():
    from vips.report.report_fields import fingerprint

    held = {"a": np.arange(6.0).reshape(2, 3), "b": np.array(1), "c": np.array(["ä"]), "d": np.zeros((0, 2))}
    others = [
        held | {"a": held["a"].T}, held | {"a": held["a"].ravel()}, held | {"a": held["a"].astype(np.float32)},
        held | {"a": -0.0 * held["a"]}, {"aa" if name == "a" else name: value for name, value in held.items()},
        {name: held[name] for name in "abc"}, held | {"b": np.array([1])}, held | {"c": np.array(["ae"])},
    ]  # fmt: skip
    same = [
        dict(reversed(held.items())), held | {"a": held["a"].astype(">f8")}, held | {"a": np.asfortranarray(held["a"])},
        held | {"a": np.repeat(held["a"], 2, axis=1)[:, ::2]},
    ]  # fmt: skip
    assert len({fingerprint(arrays) for arrays in [held, *others]}) == len(others) + 1
    assert {fingerprint(arrays) for arrays in same} == {fingerprint(held)}


def test_a_posterior_that_cannot_be_saved_ends_no_fit(monkeypatch):
    monkeypatch.setattr("vips.model.released_arrays", lambda model: {"a": np.array([object()])})
    report = counts().privacy_
    assert report.releases[0].sha256 == ""
    assert "Fingerprint" not in str(report)
    assert vips.PrivacyReport.from_json(report.to_json()) == report
