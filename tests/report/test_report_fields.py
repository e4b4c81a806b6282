"""Reports are checked field by field when they are read: anything invalid raises one kind of error."""

import json
import shutil
from dataclasses import fields, replace
from functools import reduce
from operator import getitem

import numpy as np
import pytest

import vips
from tests.laws.cases import BetaBernoulli
from tests.persistence.damage import members_of, rewritten
from tests.plans import with_release
from tests.report.test_report import CALIBRATED, KINDS
from vips import PrivacyPlan, PrivacyReport
from vips.privacy import Release
from vips.report.report_fields import LONGEST_TEXT

REFRESH = '7</dd><meta http-equiv="refresh" content="0;url=http://localhost:9/"><style>.notice{display:none}</style>'
LEDGER = {"dataset": "letters", "run": "2f", "purpose": "history"}
CHARGED = with_release(CALIBRATED, ledger=LEDGER)  # with every optional part
OTHERS = [None, True, 3, -1, 2.5, float("nan"), float("inf"), "", REFRESH, [], [REFRESH], [[]], {}, {"a": 1}, 10**400]


def saved():
    return json.loads(CHARGED.to_json())


def changed(path, value):
    values = saved()
    reduce(getitem, path[:-1], values)[path[-1]] = value
    return values


@pytest.mark.parametrize(
    "values", [None, [], "report", 3, {}, "no JSON", "[" * 100_000, "3"], ids=lambda value: str(value)[:9]
)
def test_a_report_is_an_object(values):
    with pytest.raises(ValueError, match="A privacy report"):
        PrivacyReport.from_json(values)


RELEASE = "releases", 0
OBJECTS = {"report": (), "release": RELEASE, "plan": (*RELEASE, "plan"), "ledger": (*RELEASE, "ledger")}


@pytest.mark.parametrize("path", OBJECTS.values(), ids=OBJECTS)
def test_names_are_exactly_those_of_the_fields(path):
    for name in reduce(getitem, path, saved()):
        values = saved()
        del reduce(getitem, path, values)[name]
        with pytest.raises(ValueError, match=f"lacks the fields.*{name}|`ledger` must name"):
            PrivacyReport.from_json(values)
    with pytest.raises(ValueError, match=r"has no fields.*surprise|`ledger` must name"):
        PrivacyReport.from_json(changed((*path, "surprise"), "1"))


# What each field may hold among OTHERS, by its type; those with a range of their own.
BY_TYPE = {"str": ["", REFRESH], "bool": [True], "dict": [{}], "list": [[], [REFRESH]]}
OF_RELEASE = {
    "plan": [], "threshold_delta": [], "on_invalid": [], "repeated_steps": [3], "ledger": [None], "sha256": [""],
}  # fmt: skip
OF_PLAN = {
    "noise_multiplier": [3, 2.5], "sampling_rate": [], "n_steps": [3], "clip_norm": [None, 3, 2.5], "sampling": [],
    "relation": [], "noise": [], "report_delta": [None], "max_rows_per_group": [None, 3], "max_weight": [None, 3, 2.5],
    "phases": [[]],
}  # fmt: skip
OWN = {"releases": []} | {f"releases.0.{name}": may_be for name, may_be in OF_RELEASE.items()}
OWN |= {f"releases.0.plan.{name}": may_be for name, may_be in OF_PLAN.items()}


def places(value, before=""):
    """Names of all that a report holds, and what stands there."""
    items = value.items() if isinstance(value, dict) else [("0", value[0])]
    for key, item in items:
        if key != "0":
            yield f"{before}{key}", item
        if (isinstance(item, dict) or key == "releases") and key != "versions":
            yield from places(item, f"{before}{key}.")


ALLOWED = {name: OWN[name] if name in OWN else BY_TYPE[type(held).__name__] for name, held in places(saved())}


def test_every_field_is_tried():
    assert set(OWN) <= set(ALLOWED)
    for kind, before in ((PrivacyReport, ""), (Release, "releases.0."), (PrivacyPlan, "releases.0.plan.")):
        assert {f"{before}{field.name}" for field in fields(kind) if field.repr} <= set(ALLOWED)


@pytest.mark.parametrize("name", ALLOWED)
def test_types_are_checked(name):
    place = tuple(int(key) if key.isdigit() else key for key in name.split("."))
    for value in OTHERS:
        is_allowed = any(type(value) is type(other) and value == other for other in ALLOWED[name])
        try:
            said = PrivacyReport.from_json(changed(place, value)) and ""
        except ValueError as error:
            said = str(error)
        assert is_allowed == (said == ""), repr(value)[:99]
        assert is_allowed or name.removeprefix("releases.0.").split(".")[0] in said, repr(value)[:99]
        assert len(said) < 500, repr(value)[:99]


def test_lists_and_objects_hold_strings_and_a_report_has_a_release():
    with pytest.raises(ValueError, match="at least one"):
        PrivacyReport.from_json(changed(("releases",), []))
    for path in (("releases", 0, "released"), ("releases", 0, "declared"), ("also_not_covered",)):
        with pytest.raises(ValueError, match=rf"{path[-1]}\[1\]`"):
            PrivacyReport.from_json(changed(path, ["a", 1]))
    with pytest.raises(ValueError, match="versions"):
        PrivacyReport.from_json(changed(("versions",), {"numpy": ["2"]}))


def test_sizes_are_bounded():
    released, longest = ("releases", 0, "released"), LONGEST_TEXT
    for path, value in (
        (("tuning",), "x" * (longest + 1)),
        (released, ["x"] * 10_001),
        (released, ["x" * (longest + 1)]),
        (("versions",), {str(i): "" for i in range(10_001)}),
        (("versions",), {"x" * (longest + 1): ""}),
        (("releases",), saved()["releases"] * 1001),
        (("releases", 0, "plan", "phases"), [{"n_steps": 1, "weight": 1.0}] * 1001),
        (("releases", 0, "plan", "n_steps"), 2**60),
        (("releases", 0, "repeated_steps"), 2**60),
        (("releases", 0, "threshold_delta"), 1.0),
    ):
        with pytest.raises(ValueError, match=path[-1]) as caught:
            PrivacyReport.from_json(changed(path, value))
        assert len(str(caught.value)) < 500


def test_a_plan_that_contradicts_itself_is_refused():
    values = json.loads(KINDS["full"].to_json())
    values["releases"][0]["plan"]["sampling_rate"] = 0.5
    with pytest.raises(ValueError, match="leave `sampling_rate` out"):
        PrivacyReport.from_json(values)


def test_what_could_not_be_read_is_not_written():
    for broken in (replace(CALIBRATED, tuning=None), with_release(CALIBRATED, what=3)):
        with pytest.raises(ValueError, match="privacy report"):
            broken.to_json()


def test_fields_that_plans_are_not_compared_by_are_neither_written_nor_read():
    plan = replace(CALIBRATED.plan, sent_from="outside")
    values = json.loads(with_release(CALIBRATED, plan=plan).to_json())
    assert "sent_from" not in values["releases"][0]["plan"]
    assert PrivacyReport.from_json(values).plan == plan
    values["releases"][0]["plan"]["sent_from"] = "outside"
    with pytest.raises(ValueError, match=r"has no fields.*sent_from"):
        PrivacyReport.from_json(values)


def test_a_forged_file_of_a_model_is_refused(tmp_path):
    plan = PrivacyPlan.from_epsilon(epsilon=1.0, delta=1e-5, sampling_rate=0.5, n_steps=3, clip_norm=1.5)
    model = BetaBernoulli(privacy=plan).fit(np.random.default_rng(0).integers(0, 2, (50, 3)).astype(float))
    model.save(tmp_path / "good.vips")
    report = json.loads(members_of((tmp_path / "good.vips").read_bytes())["header.json"])["report"]
    report["releases"][0]["repeated_steps"] = REFRESH
    rewritten(shutil.copy(tmp_path / "good.vips", tmp_path / "forged.vips"), report=report)
    assert vips.load(tmp_path / "good.vips", BetaBernoulli).privacy_ == model.privacy_
    with pytest.raises(ValueError, match=r"`releases\[0\].repeated_steps` of a privacy report must be of type float"):
        vips.load(tmp_path / "forged.vips", BetaBernoulli)


def test_a_line_of_prose_cannot_be_forged():
    forged = replace(
        with_release(
            CHARGED, ledger={"dataset": "\x1b[8m", "run": "\x9bA", "purpose": "a\nGuarantee: none"}, mechanism="\x1b[3m"
        ),
        tuning="none.\nNot covered: nothing",
        unit="\x1b[2Jone",
        versions={"vips\r": "\u202e1"},
    )
    honest = replace(CHARGED, tuning="none", unit="one", versions={"vips": "1"})
    shown = str(forged)
    assert len(shown.splitlines()) == len(str(honest).splitlines())
    assert all(character.isprintable() or character == "\n" for character in shown)
    assert r"Tuning: none.\nNot covered: nothing." in shown


def test_what_is_written_is_read_and_files_hold_it(tmp_path):
    assert PrivacyReport.from_json(saved()) == PrivacyReport.from_json(CHARGED.to_json()) == CHARGED
    assert CHARGED.to_json(tmp_path / "report.json") is None
    assert (tmp_path / "report.json").read_text(encoding="utf-8").strip() == CHARGED.to_json()
