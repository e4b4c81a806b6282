"""Reports are checked field by field when they are read: anything invalid raises one kind of error."""

import json
import zipfile
from dataclasses import fields, replace

import numpy as np
import pytest

import vips
from tests.laws.cases import BetaBernoulli
from tests.privacy.test_report import CALIBRATED, KINDS
from vips import PrivacyPlan, PrivacyReport
from vips.privacy import report_fields

REFRESH = '7</dd><meta http-equiv="refresh" content="0;url=http://localhost:9/"><style>.notice{display:none}</style>'
CHARGED = replace(CALIBRATED, ledger={"dataset": "letters", "run": "2f", "charged_steps": 5})
OTHERS = [None, True, 3, -1, 2.5, float("nan"), float("inf"), "", REFRESH, [], [REFRESH], [[]], {}, {"a": 1}, 10**400]


def saved():
    return json.loads(CHARGED.to_json())


def changed(path, value):
    values = saved()
    place = values
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return values


def test_what_is_written_is_read():
    assert PrivacyReport.from_json(saved()) == CHARGED


def test_every_field_has_a_reader():
    assert set(report_fields._READERS) == {f.name for f in fields(PrivacyReport)}
    assert {f.type for f in fields(PrivacyPlan) if f.compare} <= set(report_fields._TYPES)


@pytest.mark.parametrize("values", [None, [], "report", 3, {}])
def test_a_report_is_an_object(values):
    with pytest.raises(ValueError, match="A privacy report"):
        PrivacyReport.from_json(values)


@pytest.mark.parametrize("path", [(), ("plan",), ("ledger",)], ids=["report", "plan", "ledger"])
def test_names_are_exactly_those_of_the_fields(path):
    place = saved()
    for key in path:
        place = place[key]
    for name in set(place):
        values = saved()
        inner = values
        for key in path:
            inner = inner[key]
        del inner[name]
        with pytest.raises(ValueError, match=f"lacks the fields.*{name}"):
            PrivacyReport.from_json(values)
    with pytest.raises(ValueError, match=r"has no fields.*surprise"):
        PrivacyReport.from_json(changed((*path, "surprise"), 1))


# What each field may hold among OTHERS.
ALLOWED = {
    "unit": ["", REFRESH],
    "preprocessing": ["", REFRESH],
    "tuning": ["", REFRESH],
    "released": [[], [REFRESH]],
    "only_noise": [True],
    "search": [None],
    "declared_public": [[], [REFRESH]],
    "not_covered": [[], [REFRESH]],
    "on_invalid": [],
    "versions": [{}],
    "repeated_steps": [3],
    "ledger": [None],
    "ledger.dataset": ["", REFRESH],
    "ledger.run": ["", REFRESH],
    "ledger.charged_steps": [3],
    "plan": [],
    "plan.noise_multiplier": [3, 2.5],
    "plan.sampling_rate": [],
    "plan.n_steps": [3],
    "plan.clip_norm": [None, 3, 2.5],
    "plan.sampling": [],
    "plan.relation": [],
    "plan.noise": [],
    "plan.reproducible_noise": [True],
    "plan.report_delta": [None],
    "plan.max_rows_per_group": [None, 3],
}


def test_every_field_is_tried():
    names = [f.name for f in fields(PrivacyReport)] + [f"ledger.{name}" for name in CHARGED.ledger]
    assert set(ALLOWED) == {*names, *(f"plan.{f.name}" for f in fields(PrivacyPlan) if f.compare)}


@pytest.mark.parametrize("value", OTHERS, ids=lambda value: repr(value)[:12])
@pytest.mark.parametrize("name", ALLOWED)
def test_types_are_checked(name, value):
    values = changed(tuple(name.split(".")), value)
    if any(type(value) is type(other) and value == other for other in ALLOWED[name]):
        PrivacyReport.from_json(values)
        return
    with pytest.raises(ValueError, match=name.split(".")[0]) as caught:
        PrivacyReport.from_json(values)
    assert len(str(caught.value)) < 500


def test_lists_and_objects_hold_strings():
    for name in ("released", "declared_public", "not_covered"):
        with pytest.raises(ValueError, match=rf"`{name}\[1\]`"):
            PrivacyReport.from_json(changed((name,), ["a", 1]))
    with pytest.raises(ValueError, match="versions"):
        PrivacyReport.from_json(changed(("versions",), {"numpy": ["2"]}))


def test_sizes_are_bounded():
    for name, value in (
        ("tuning", "x" * 100_001),
        ("released", ["x"] * 10_001),
        ("released", ["x" * 100_001]),
        ("versions", {str(i): "" for i in range(10_001)}),
        ("versions", {"x" * 100_001: ""}),
    ):
        with pytest.raises(ValueError, match=name) as caught:
            PrivacyReport.from_json(changed((name,), value))
        assert len(str(caught.value)) < 500
    for path in (("plan", "n_steps"), ("ledger", "charged_steps")):
        with pytest.raises(ValueError, match=path[1]):
            PrivacyReport.from_json(changed(path, 2**60))


def test_a_plan_that_contradicts_itself_is_refused():
    values = json.loads(KINDS["full"].to_json())
    values["plan"]["sampling_rate"] = 0.5
    with pytest.raises(ValueError, match="leave `sampling_rate` out"):
        PrivacyReport.from_json(values)


def test_what_could_not_be_read_is_not_written():
    for broken in (replace(CALIBRATED, tuning=None), replace(CALIBRATED, ledger={"charged_steps": REFRESH})):
        with pytest.raises(ValueError, match="privacy report"):
            broken.to_json()


def test_fields_that_plans_are_not_compared_by_are_neither_written_nor_read():
    plan = replace(CALIBRATED.plan, sent_from="outside")
    values = json.loads(replace(CALIBRATED, plan=plan).to_json())
    assert "sent_from" not in values["plan"]
    assert PrivacyReport.from_json(values).plan == plan
    with pytest.raises(ValueError, match=r"has no fields.*sent_from"):
        PrivacyReport.from_json(values | {"plan": values["plan"] | {"sent_from": "outside"}})


def test_a_forged_file_of_a_model_is_refused(tmp_path):
    plan = PrivacyPlan.from_epsilon(epsilon=1.0, delta=1e-5, sampling_rate=0.5, n_steps=3, clip_norm=1.5)
    model = BetaBernoulli(privacy=plan).fit(np.random.default_rng(0).integers(0, 2, (50, 3)).astype(float))
    model.save(tmp_path / "good.vips")
    with zipfile.ZipFile(tmp_path / "good.vips") as good, zipfile.ZipFile(tmp_path / "forged.vips", "w") as forged:
        for name in good.namelist():
            content = good.read(name)
            if name == "header.json":
                header = json.loads(content)
                header["report"]["ledger"] = {"dataset": "letters", "run": "1", "charged_steps": REFRESH}
                content = json.dumps(header)
            forged.writestr(name, content)
    assert vips.load(tmp_path / "good.vips", BetaBernoulli).privacy_ == model.privacy_
    with pytest.raises(ValueError, match=r"`ledger.charged_steps` of a privacy report must be an integer ≥ 1"):
        vips.load(tmp_path / "forged.vips", BetaBernoulli)


def test_a_line_of_prose_cannot_be_forged():
    forged = replace(
        CHARGED,
        tuning="none.\nNot covered: nothing",
        unit="\x1b[2Jone",
        versions={"vips\r": "\u202e1"},
        ledger=CHARGED.ledger | {"dataset": "\x1b[8m", "run": "\x9bA"},
    )
    honest = replace(forged, tuning="none", unit="one", versions={"vips": "1"}, ledger=CHARGED.ledger)
    shown = str(forged)
    assert len(shown.splitlines()) == len(str(honest).splitlines())
    assert all(character.isprintable() or character == "\n" for character in shown)
    assert r"Tuning: none.\nNot covered: nothing." in shown


def test_text_is_read_and_files_hold_it(tmp_path):
    assert PrivacyReport.from_json(CHARGED.to_json()) == CHARGED
    assert CHARGED.to_json(tmp_path / "report.json") is None
    assert (tmp_path / "report.json").read_text(encoding="utf-8").strip() == CHARGED.to_json()
    for text in ("no JSON", "[" * 100_000, "3"):
        with pytest.raises(ValueError, match="A privacy report must be"):
            PrivacyReport.from_json(text)
