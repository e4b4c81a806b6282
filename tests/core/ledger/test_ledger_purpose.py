"""What a release is for: kept by its entry, shown by every screen, whatever the text holds."""

import pickle
import shlex

import numpy as np
import pytest

from tests.core.ledger.forgery import rewrite, sql
from vips import DirichletMultinomial, LedgerError, PrivacyLedger, PrivacyPlan
from vips.__main__ import main
from vips.core.ledger import chain_file

AIM = "thesis of A., «heart & soul»"
PLAN = PrivacyPlan(noise_multiplier=20.0, sampling="full", n_steps=1)
HOSTILE = ["two\nlines", "\x1b[2J", "\u202eback", "a\u2028b", "\ud800", "x" * 201, "x" * 10**6, 7, None, b"thesis"]


@pytest.fixture
def ledger(path):
    return PrivacyLedger(path, epsilon=3.0, delta=1e-5, dataset="votes", purpose=AIM)


def fit(**more):
    return DirichletMultinomial(privacy=PLAN).fit(np.eye(3), **more)


def test_every_way_to_a_ledger_keeps_the_purpose(path, ledger):
    fit(ledger=ledger)
    with ledger:
        model = fit()
        sent = pickle.dumps(DirichletMultinomial(privacy=PLAN))
    pickle.loads(sent).fit(np.eye(3))
    ledger.inside(fit)()
    ledger.charge_event("a count", unit="one record", relation="add_or_remove", rho=1e-4)
    pickle.loads(pickle.dumps(ledger)).charge(PLAN)
    fit(ledger=PrivacyLedger.open(path, purpose="a second study"))
    fit(ledger=PrivacyLedger.open(path))
    assert [run.purpose for run in ledger.runs()] == [AIM] * 6 + ["a second study", ""]
    assert model.privacy_.ledger["purpose"] == AIM
    assert f"1 step, for the purpose: {AIM}" in str(model.privacy_)
    assert "purpose" not in str(fit(ledger=PrivacyLedger.open(path)).privacy_)


def test_a_resumed_fit_and_a_block_keep_their_purpose(path, ledger, tmp_path):
    other = PrivacyLedger.open(path, purpose="another")
    fit(ledger=ledger, checkpoint=tmp_path / "fit.vips")
    with pytest.warns(match="finished fit"):
        again = fit(ledger=other, checkpoint=tmp_path / "fit.vips")
    assert again.privacy_.ledger["purpose"] == AIM
    with ledger, ledger:
        with pytest.raises(LedgerError, match="one purpose"), other:
            pass
        with pytest.raises(LedgerError, match="one purpose"):
            other.inside(fit)
        assert fit(ledger=other).privacy_.ledger["purpose"] == "another"
        assert fit().privacy_.ledger["purpose"] == AIM


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: repr(text)[:12])
def test_a_text_that_no_line_can_show_is_refused(path, ledger, text):
    for make in (
        lambda: PrivacyLedger.open(path, purpose=text),
        lambda: PrivacyLedger(path.with_name("new"), 1.0, 1e-6, "votes", purpose=text),
    ):
        with pytest.raises(LedgerError, match="`purpose` must be a text of one line") as caught:
            make()
        assert len(str(caught.value)) < 300
    assert not path.with_name("new").exists()


@pytest.mark.parametrize("text", [*HOSTILE, ..., [], {}], ids=lambda text: repr(text)[:12])
def test_forged_entries_are_told(path, ledger, text):
    fit(ledger=ledger)
    body = ledger.history()[1] | {"purpose": 1.5 if isinstance(text, bytes) else text}
    written = chain_file._canonical({name: value for name, value in body.items() if value is not ...})
    sql(path, "DELETE FROM entries WHERE number > 1")
    rewrite(path, lambda number, before: written if number == 1 else before)
    with pytest.raises(LedgerError, match="Entry 1 of the ledger is not one that vips writes"):
        PrivacyLedger.open(path)


def test_markup_is_a_purpose_and_stays_text(path, tmp_path, capsys):
    attack = "<script>alert(1)</script>"
    model = fit(ledger=PrivacyLedger(path, epsilon=3.0, delta=1e-5, dataset="votes", purpose=attack))
    assert main(["ledger", "show", str(path)]) == 0
    assert attack in capsys.readouterr().out
    model.privacy_.to_html(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<script>alert" not in page
    assert "<dt>Purpose</dt><dd><bdi>&lt;script&gt;alert" in page


def test_the_shell_states_it(tmp_path, monkeypatch, capsys):
    pd = pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    pd.DataFrame({"a": [1, 2] * 50, "b": ["yes", "no"] * 50}).to_csv("t.csv", index=False)
    assert main(shlex.split("ledger create v.ledger --dataset V --epsilon 3 --delta 1e-6 --relation replace_one")) == 0
    assert "replace_one" in str(PrivacyLedger.open("v.ledger").relation)
    assert main(shlex.split("ledger create w.ledger --dataset V --epsilon 3 --delta 1e-6")) == 0
    line = "fit t.csv --model logistic --target b --classes no,yes --epsilon 1 --delta 1e-6 --ledger w.ledger"
    command = shlex.split(line)
    assert main([*command, "--column", "a=0:9", "--purpose", "two\nlines"]) == 2
    assert "`purpose` must be a text of one line" in capsys.readouterr().err
    assert not PrivacyLedger.open("w.ledger").runs()
    assert main([*command, "--column", "a=0:9", "--purpose", AIM]) == 0
    assert {run.purpose for run in PrivacyLedger.open("w.ledger").runs()} == {AIM}
    assert f"for the purpose: {AIM}" in capsys.readouterr().out
