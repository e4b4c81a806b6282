"""A model outside the package can do what the package's models do; its author writes only the contract."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import vips
from tests import own_model
from tests.own_model import GaussianMean
from vips.core.sums import Joint, Quadratic
from vips.expfam import Dirichlet

PLAN = vips.PrivacyPlan.from_epsilon(epsilon=2.0, delta=1e-6, sampling_rate=1.0, n_steps=2)


def rows(n=4000, seed=0):
    rng = np.random.default_rng(seed)
    return np.clip(rng.normal([0.5, -0.2, 0.0], 1.0, (n, 3)), -1.5, 1.5)


@pytest.fixture(scope="module")
def fitted():
    return GaussianMean(privacy=PLAN).fit(rows()), GaussianMean().fit(rows())


def test_it_is_short():
    code = Path(own_model.__file__).read_text(encoding="utf-8").split("class ")[1]
    assert len(code.splitlines()) <= 35


def test_it_fits_and_is_saved(fitted, tmp_path):
    private, plain = fitted
    np.testing.assert_allclose(plain.last_posterior_.mean, rows().sum(axis=0) / 4001, rtol=1e-12)
    np.testing.assert_allclose(private.last_posterior_.mean, plain.last_posterior_.mean, atol=0.05)
    assert private.privacy_.epsilon(1e-6) == pytest.approx(2.0, rel=1e-3)
    assert 0.9 < private.signal()["count"] <= 1.0
    assert plain.signal() == {}
    assert "all constructor arguments" in private.privacy_.declared_public
    private.save(tmp_path / "mean.vips")
    loaded = vips.load(tmp_path / "mean.vips", model_class=GaussianMean)
    np.testing.assert_array_equal(loaded.last_posterior_.mean, private.last_posterior_.mean)


def test_it_is_compared_and_reported_with_scores(fitted, tmp_path):
    private, plain = fitted
    test = rows(500, seed=1)
    comparison = vips.compare(private, plain, test, X=rows(), may_use_private_data=True, n_bootstrap=50)
    score = comparison["mean squared distance (lower is better)"]
    errors = np.sum((test - plain.last_posterior_.mean) ** 2, axis=1)
    assert score.baseline == pytest.approx(errors.mean(), rel=1e-12)
    assert comparison.movers(1)[0].name in ("x0", "x1", "x2")
    assert comparison["share of signal, count"].private == pytest.approx(private.signal()["count"])
    comparison.to_html(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "mean squared distance" in page
    assert "one record" in page


class Careless(GaussianMean):
    """All records decide about each."""

    def expected_statistics(self, records, posterior):
        return super().expected_statistics(records / records.max(initial=1.0), posterior)


@pytest.mark.slow
def test_it_is_audited():
    report = vips.audit(GaussianMean(privacy=PLAN), rows(60), n_runs=10_000)
    assert report.passed, str(report)
    careless = Careless(privacy=PLAN)
    assert "independence" in [finding.name for finding in vips.audit(careless, rows(60), n_runs=0).failed]


def test_the_error_for_an_unknown_posterior_says_what_to_write(fitted):
    class Odd(GaussianMean):
        def to_posterior(self, average, noise_std, previous):
            return {"total": average["total"], "count": average["count"]}

    odd = Odd(privacy=PLAN).fit(rows())
    with pytest.raises(TypeError, match="posterior_parts"):
        vips.compare(odd, Odd().fit(rows()))


class MeanAndScale(GaussianMean):
    """Its posterior is a dict of distributions, and of numbers beside them."""

    def to_posterior(self, average, noise_std, previous):
        mean = super().to_posterior(average, noise_std, previous)
        return {"mean": mean, "share": Dirichlet(1.0 + np.abs(average["total"]))}


class MeanAndMore(MeanAndScale):
    def to_posterior(self, average, noise_std, previous):
        return super().to_posterior(average, noise_std, previous) | {"squares": average["total"] ** 2}


@pytest.mark.parametrize("cls", [MeanAndScale, MeanAndMore])
def test_a_dict_of_distributions_is_saved_and_goes_on(cls, tmp_path):
    model = cls(privacy=PLAN).fit(rows(), checkpoint=tmp_path / "checkpoint.vips")
    model.save(tmp_path / "mean.vips")
    again = cls(privacy=PLAN).fit(rows(), checkpoint=tmp_path / "checkpoint.vips")
    for other in (vips.load(tmp_path / "mean.vips", model_class=cls), again):
        assert other.last_posterior_.keys() == model.last_posterior_.keys()
        np.testing.assert_array_equal(other.last_posterior_["mean"].var, model.last_posterior_["mean"].var)
        shares = (fitted.last_posterior_["share"].concentration for fitted in (other, model))
        np.testing.assert_array_equal(*shares)


def test_a_dict_of_distributions_is_compared():
    comparison = vips.compare(MeanAndScale(privacy=PLAN).fit(rows()), MeanAndScale().fit(rows()))
    names = {f"{part}: x{i}" for part in ("mean", "share") for i in range(3)}
    assert {mover.name for mover in comparison.movers(6)} == names


@pytest.mark.parametrize(("methods", "says"), [
    ({"to_posterior": lambda *_: {"mean": "words"}}, "its posterior holds no numbers"),
    ({"to_posterior": lambda *_: None}, "has no attribute 'to_arrays'"),
    ({"initial": lambda *_: {"count": np.zeros(()), "total": np.zeros(3), "more": np.zeros(2)}}, "A fit begins with arrays"),
])  # fmt: skip
def test_a_start_without_numbers_is_refused_before_a_step(methods, says, tmp_path):
    ledger = vips.PrivacyLedger(tmp_path / "a.ledger", epsilon=9.0, delta=1e-5, dataset="rows")
    with pytest.raises((AttributeError, ValueError), match=says):
        type("Odd", (GaussianMean,), methods)(privacy=PLAN).fit(rows(60), ledger=ledger)
    assert ledger.spent() == 0.0


class MeanOfSeen(GaussianMean):
    """NaN: not seen; such a row adds what it has."""

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def valid_records(self, records):
        return ~np.isinf(records).any(axis=1)

    def expected_statistics(self, records, posterior):
        return super().expected_statistics(np.nan_to_num(records), posterior)


@pytest.mark.parametrize("privacy", [None, PLAN])
def test_it_can_use_rows_with_nan(privacy):
    X = rows()
    X[::2, 1] = np.nan
    assert MeanOfSeen(privacy=privacy).fit(X).last_posterior_.precision[0] == pytest.approx(4001, rel=0.1)
    if privacy is None:
        X[3, 0] = np.inf
        with pytest.raises(ValueError, match="infinity"):
            MeanOfSeen().fit(X)


class OfSomeRows(GaussianMean):
    """Its statistics are those of other rows than it gets."""

    def __init__(self, chosen, *, privacy=None):
        super().__init__(privacy=privacy)
        self.chosen = chosen

    def expected_statistics(self, records, posterior):
        return super().expected_statistics(self.chosen(records), posterior)


PERSONS = replace(PLAN, max_rows_per_group=3)
OTHER_ROWS = {"some": lambda X: X[X[:, 0] > 0], "twice": lambda X: np.vstack([X, X]), "one": lambda X: X[:1]}


@pytest.mark.parametrize("privacy", [None, PLAN, PERSONS], ids=["ordinary", "rows", "persons"])
@pytest.mark.parametrize("chosen", OTHER_ROWS)
def test_each_record_has_one_row_of_statistics(chosen, privacy):
    """Else removing a record would move the weights of others."""
    ids = np.arange(400) // 2 if privacy is PERSONS else None
    with pytest.raises(ValueError, match="one row for each record"):
        OfSomeRows(OTHER_ROWS[chosen], privacy=privacy).fit(rows(400), groups=ids)
    OfSomeRows(np.copy, privacy=privacy).fit(rows(400), groups=ids)
    with pytest.raises(ValueError, match="statistics of a record are not finite"):
        OfSomeRows(lambda X: np.where(X > 0, X, np.nan)).fit(rows(400))


class Squares(GaussianMean):
    """Sums x xᵀ; ``symmetric`` is what the block says of itself."""

    symmetric = False

    def blocks(self):
        return {"second": vips.Block((3, 3), symmetric=self.symmetric)}

    def initial(self, rng):
        return {"second": np.zeros((3, 3))}

    def expected_statistics(self, records, posterior):
        return Quadratic("second", records)

    def to_posterior(self, average, noise_std, previous):
        return {"second": average["second"]}


def test_squares_of_rows_need_a_symmetric_block(monkeypatch):
    """Rounded shares are in isometric coordinates: without symmetric noise a record would move them by √2 C."""
    plan = vips.PrivacyPlan(noise_multiplier=1e-3, sampling_rate=1.0, n_steps=1, noise="discrete", clip_norm=1.0)
    with pytest.raises(ValueError, match=r"'second' sums x xᵀ of each row: declare Block\(\(3, 3\), symmetric=True\)"):
        Squares(privacy=plan).fit(rows(10))
    monkeypatch.setattr(Squares, "symmetric", True)
    moved = Squares(privacy=plan).fit(np.full((1, 3), 9.0)).last_posterior_["second"]
    assert np.linalg.norm(moved) == pytest.approx(1.0, abs=0.02)


def test_forms_side_by_side_have_blocks_of_their_own():
    with pytest.raises(ValueError, match="a block of one name"):
        Joint(Quadratic("second", rows(3)), Quadratic("second", rows(3)))
