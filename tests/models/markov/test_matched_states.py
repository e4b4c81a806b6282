"""Hidden states that are matched to released totals: are scores derivatives, do intervals hold, and are the others refused?"""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import linear_sum_assignment

from tests.mutants import check_notices
from vips import CategoricalHMM, GaussianHMM, PoissonHMM, PrivacyPlan, load
from vips.core.phases import phases_of
from vips.data import Sequences
from vips.models.components.categories import Categories
from vips.models.components.columns import Columns
from vips.models.components.component import Frame
from vips.models.components.counts import Counts
from vips.models.components.matching import match as matches
from vips.models.components.matching.charts import Gaussians, Rates, Simplexes, Tilts
from vips.models.components.matching.match import Match
from vips.models.components.numbers import Numbers
from vips.models.markov import matching
from vips.models.markov.matching import ChainSimulator, ColumnSimulator, SymbolSimulator, VectorSimulator

K, LENGTHS = 2, np.array([2, 4, 7])
START, MOVES = np.array([0.7, 0.3]), np.array([[0.85, 0.15], [0.25, 0.75]])
EMISSIONS = np.array([[0.5, 0.3, 0.15, 0.05], [0.05, 0.1, 0.25, 0.6]])
PLAN = PrivacyPlan.from_epsilon(epsilon=2.0, delta=1e-5, sampling_rate=1.0, n_steps=24)

# -- scores -----------------------------------------------------------------------------------------------------------

NUMBER = Numbers((-3.0,), (5.0,), frame=Frame(np.ones(1), np.full(1, 2.0)))
MIXED = Columns((NUMBER, Counts((9,)), Categories((3,))), ((1,), (2,), (0,)))
SEEN = {
    "symbols": (SymbolSimulator, None, [Simplexes(EMISSIONS, 1.0)]),
    "counts": (ColumnSimulator, Columns((Counts((9, 9)),), ((0, 1),)), [Rates(np.array([[0.5, 4.0], [6.0, 1.0]]), 1.0, 0.1)]),
    "columns of all kinds": (ColumnSimulator, MIXED, [
        Gaussians(np.array([[0.0], [1.0]]), np.array([[[0.6]], [[0.4]]]), True, np.zeros(1), np.eye(1), (1.0, 1.0)),
        Rates(np.array([[0.5], [6.0]]), 1.0, 0.1), Simplexes(np.array([[0.2, 0.5, 0.3], [0.6, 0.1, 0.3]]), 1.0),
    ]),
    "vectors": (VectorSimulator, None, [Gaussians(
        np.array([[0.0, 1.0], [2.0, -1.0]]), np.array([[[0.6, 0.0], [0.2, 0.5]], [[0.4, 0.0], [-0.3, 0.8]]]), False,
        np.zeros(2), np.eye(2), (1.0, 2.0),
    )]),
}  # fmt: skip


def simulator_and_charts(seen):
    kind, columns, charts = SEEN[seen]
    simulator = kind(SimpleNamespace(n_features_in_=2, n_components=K), LENGTHS, 4.0, columns)
    features = np.array([[-1.0, 0.5], [0.0, -1.0], [1.0, 0.5]])
    lengths = Tilts(np.array([0.3, 0.4, 0.3]), features, np.array([0.2, -0.1]), 10.0)
    missing = Simplexes(np.tile([0.8, 0.2], (simulator.n_missing, 1)), 1.0)
    return simulator, [Simplexes(START[None], 1.0), Simplexes(MOVES, 1.0), lengths, missing, *charts]


def log_densities(charts, cells):
    """Log density of one step in each state, by SciPy."""
    seen, chart = ~np.isnan(cells), charts[0]
    if len(charts) > 1:
        (number, rates, answers), (answer, x, count) = charts, cells
        logs = (
            np.zeros(K)
            if np.isnan(x)
            else stats.norm.logpdf(0.5 * (x - 1.0), number.mean[:, 0], number.factor[:, 0, 0])
        )
        logs = logs + (0.0 if np.isnan(count) else stats.poisson.logpmf(count, rates.rates[:, 0]))
        return logs + (0.0 if np.isnan(answer) else np.log(answers.p[:, int(answer)]))
    if isinstance(chart, Rates):
        return stats.poisson.logpmf(cells[seen], chart.rates[:, seen]).sum(axis=1)
    if not seen.all():
        return np.zeros(K)
    if isinstance(chart, Simplexes):
        return np.log(chart.p[:, int(cells[0])])
    return np.array([
        stats.multivariate_normal.logpdf(cells, m, c) for m, c in zip(chart.mean, chart.covariances, strict=True)
    ])  # fmt: skip


def log_likelihood(sequence, charts):
    """By adding up over all states, step by step."""
    start, moves, lengths, missing, *seen = charts
    at = start.p[0]
    total = np.log(lengths.p[list(LENGTHS).index(len(sequence))])
    for t, cells in enumerate(sequence):
        at = (at if t == 0 else at @ moves.p) * np.exp(log_densities(seen, cells))
        total += sum(np.log(missing.p[j, int(np.isnan(cells[j]))]) for j in range(len(missing.p))) + np.log(at.sum())
        at = at / at.sum()
    return total


def check_scores(seen):
    check_slopes(*simulator_and_charts(seen), log_likelihood)


def check_slopes(simulator, charts, log_likelihood):
    records = simulator.simulated(charts, 12, np.random.default_rng(0))
    scores, column, h = simulator.scores(records, charts), 0, 1e-5
    assert np.isnan(records.values).any()
    for i, chart in enumerate(charts):
        for step in np.eye(chart.size):
            moved = [
                [*charts[:i], chart.moved(sign * h * step, np.zeros((chart.size,) * 2)), *charts[i + 1 :]]
                for sign in (1, -1)
            ]
            slopes = [np.subtract(*(log_likelihood(s, at) for at in moved)) / (2 * h) for s in records]
            np.testing.assert_allclose(scores[:, column], slopes, atol=1e-6, err_msg="another slope")
            column += 1
    assert column == scores.shape[1]


@pytest.mark.parametrize("seen", SEEN)
def test_scores_are_derivatives_of_the_log_likelihood(seen):
    check_scores(seen)


def missing_cells_are_seen(patch):
    logs = ColumnSimulator.logs

    def of_all_cells(self, charts, values, images):
        return logs(self, charts, np.nan_to_num(values), images)

    patch.setattr(ColumnSimulator, "logs", of_all_cells)


def moves_are_forgotten(patch):
    inferred = matching.inferred
    patch.setattr(matching, "inferred", lambda offsets, start, moves, *args: inferred(offsets, start, moves.T, *args))


def lengths_are_those_of_the_first_law(patch):
    patch.setattr(Tilts, "scores", lambda self, levels: self.features[levels] - self.base @ self.features)


@pytest.mark.parametrize("mutant", [missing_cells_are_seen, moves_are_forgotten, lengths_are_those_of_the_first_law])
def test_mutants_of_scores_are_noticed(mutant, monkeypatch):
    check_notices(lambda: check_scores("counts"), mutant, monkeypatch, "another slope")


@pytest.mark.parametrize("seen", SEEN)
def test_simulated_sequences_are_of_the_model(seen):
    simulator, charts = simulator_and_charts(seen)
    records = simulator.simulated(charts, 20_000, np.random.default_rng(1))
    assert set(records.lengths) == set(LENGTHS)
    assert np.isnan(records.values[:, 0]).mean() == pytest.approx(0.2, abs=0.01)
    scores = simulator.scores(records, charts)
    z = scores.mean(axis=0) / (scores.std(axis=0) / np.sqrt(len(scores)) + 1e-12)
    assert np.abs(z).max() < 4.5  # of two dozen scores, whose mean is 0


def test_a_probability_of_0_stays():
    chart = Simplexes(np.array([[0.6, 0.4, 0.0], [0.0, 0.0, 1.0]]), 1.0)
    precision = chart.prior()[1]
    assert np.linalg.eigvalsh(precision).min() > 0.0
    moved = chart.moved(np.array([0.1, -0.2, 3.0, 1.0, -1.0, 2.0]), 0.1 * np.eye(6))
    np.testing.assert_array_equal(moved.p == 0.0, chart.p == 0.0)
    np.testing.assert_allclose(moved.p.sum(axis=1), 1.0)


def test_weighted_statistics_add_up():
    """Those of each record, of every phase, are what the released sums are made of."""
    rng = np.random.default_rng(0)
    symbols = CategoricalHMM(K, n_symbols=4, privacy=PLAN, random_state=0)
    many = CategoricalHMM(K, n_symbols=130, privacy=replace(PLAN, n_steps=36), random_state=0)
    counts = PoissonHMM(K, max_count=9, n_features=2, privacy=PLAN, random_state=0)
    vectors = [GaussianHMM(K, covariance_type=c, max_norm=9.0, n_features=2, privacy=PLAN) for c in ("full", "diag")]
    for model, d in ((symbols, 1), (many, 1), (counts, 2), *((model, 2) for model in vectors)):
        values = [rng.integers(0, 4, (n, d)).astype(float) for n in (5, 1, 3)]
        values[0][2] = np.nan
        records = Sequences.from_list(values, n_features=d)
        model.fit(records)
        weights = rng.random(3)
        for phase in phases_of(model, model.privacy_.plan.n_steps):
            if phase.statistics in ("_profile_statistics", "_move_statistics"):
                continue  # their posteriors are gone
            statistics = phase.statistics_of(model, records, model.last_posterior_)
            sums = statistics.weighted_sum(weights)
            for name, of_records in statistics.weighted(weights).items():
                assert of_records.shape == (3, *phase.blocks[name].shape)
                np.testing.assert_allclose(of_records.sum(axis=0), sums[name], rtol=1e-9, atol=1e-9)


# -- fits -------------------------------------------------------------------------------------------------------------


def sequences(n, seed=0, missing=0.1):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(4, 15, n)
    states = np.empty((n, 14), int)
    states[:, 0] = rng.random(n) < START[1]
    for t in range(1, 14):
        states[:, t] = rng.random(n) < MOVES[states[:, t - 1], 1]
    codes = (rng.random((n, 14, 1)) >= np.cumsum(EMISSIONS, axis=1)[states]).sum(axis=-1)
    codes = np.where(rng.random(codes.shape) < missing, -1, codes)
    return Sequences.from_list([row[:length] for row, length in zip(codes, lengths, strict=True)], n_features=1)


def fitted(X, privacy=PLAN, **settings):
    """Noise is reproducible."""
    privacy = replace(privacy, reproducible_noise=True)
    arguments = {"n_symbols": 4, "max_length": 14, "typical_length": 6, "random_state": 1, "privacy": privacy}
    groups = settings.pop("groups", None)
    return CategoricalHMM(K, **arguments | settings).fit(X, groups=groups)


@pytest.fixture(scope="module", autouse=True)
def some_generated_sequences():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ChainSimulator, "sizes", (3_000, 7_000, 1_500))
        for name, number in (("_FIRST", 5), ("_LAST", 3), ("_MORE", 5)):
            patch.setattr(matches, name, number)
        yield


@pytest.fixture(scope="module")
def fit():
    return fitted(sequences(8_000, 1))


@pytest.fixture(scope="module")
def fits(many_generated_sequences):
    return [fitted(sequences(8_000, seed)) for seed in (1, 2)]


def share_held(model) -> float:
    posterior = model.posterior_
    order = linear_sum_assignment(np.abs(EMISSIONS[:, None] - posterior.draws["emissions"].mean).sum(axis=-1))[1]
    ordered, held = model.in_order(posterior, order), []
    for name, truth in (("start", START), ("moves", MOVES), ("emissions", EMISSIONS)):
        lower, upper = ordered.draws[name].interval(0.95)
        held += list(((lower <= truth) & (truth <= upper)).ravel())
    return float(np.mean(held))


def check_that_intervals_hold(models):
    held = [share_held(model) for model in models]
    assert np.mean(held) > 0.8, f"intervals hold {held}"


def test_intervals_hold_where_clips_bind_and_some_steps_are_missing(fit):
    check_that_intervals_hold([fit])


def clips_are_forgotten(patch):
    patch.setattr(PrivacyPlan, "clip_weights", lambda plan, norms: np.ones(len(norms)))


def missing_steps_are_forgotten(patch):
    simulated = SymbolSimulator.simulated

    def mutant(self, charts, *args):
        return simulated(self, [*charts[:3], Simplexes(np.array([[1.0, 0.0]]), 1.0), charts[4]], *args)

    patch.setattr(SymbolSimulator, "simulated", mutant)


def replaced_fit(model):
    """The same fit, of which nothing was computed yet."""
    copied = CategoricalHMM(**model.get_params())
    vars(copied).update({name: value for name, value in vars(model).items() if name != "_computed"})
    return copied


def test_what_people_read_is_the_match(fit, tmp_path):
    model = fit
    posterior, summary = model.posterior_, model.summary()
    np.testing.assert_allclose(model.transmat_, posterior.draws["moves"].mean, atol=0.01)
    np.testing.assert_allclose(model.startprob_, posterior.draws["start"].mean, atol=0.01)
    np.testing.assert_allclose(model.emissionprob_, posterior.draws["emissions"].mean, atol=0.01)
    np.testing.assert_allclose(model.shares_, posterior.draws["shares"].mean, atol=0.01)
    assert ((summary["lower"] < summary["share"]) & (summary["share"] < summary["upper"])).all()
    assert (model.summary(level=0.5)["upper"] < summary["upper"]).all()
    assert model.findings() == {"misfit of the released totals (standard deviations)": model.match().misfit}
    X = sequences(50, seed=9)
    model.save(tmp_path / "chain.vips")
    loaded = load(tmp_path / "chain.vips")
    np.testing.assert_allclose(loaded.predict_proba(X), model.predict_proba(X), rtol=1e-6)
    assert loaded.match().chi2 == pytest.approx(model.match().chi2)
    synthetic, _ = model.sample(4_000, random_state=0)
    assert synthetic.lengths.mean() == pytest.approx(9.0, abs=1.5)  # which totals hardly tell


def test_estimates_are_nearer_than_those_of_the_fit(fit):
    tables = (e[np.argsort(e[:, 0])] for e in (fit.emissionprob_, fit.last_posterior_.emissions.mean))
    ours, theirs = (np.sqrt(np.mean((e - EMISSIONS[np.argsort(EMISSIONS[:, 0])]) ** 2)) for e in tables)
    assert ours < theirs


def test_masks_hold_in_the_match():
    rng = np.random.default_rng(0)
    before = rng.geometric(0.2, 6_000)
    codes = [np.where(np.arange(10) < n, rng.integers(0, 2, 10), rng.integers(2, 4, 10)) for n in before]
    model = fitted(codes, startprob_mask=[1, 0], transmat_mask=np.triu(np.ones((2, 2))), n_symbols=4)
    assert not model.why_no_intervals()
    np.testing.assert_allclose(model.transmat_, [[0.8, 0.2], [0.0, 1.0]], atol=0.05)
    assert model.transmat_[1, 0] == 0.0


def test_what_cannot_be_matched_is_refused_in_words():
    X = sequences(400)
    with pytest.raises(NotImplementedError, match="kept"):
        fitted(sequences(400, missing=0.0), PrivacyPlan.non_private(n_steps=8)).match()
    with pytest.raises(NotImplementedError, match="kept"):
        fitted(X, n_symbols=400).match()
    short = PoissonHMM(2, max_count=9, n_features=1, privacy=replace(PLAN, n_steps=2)).fit(X)
    with pytest.raises(NotImplementedError, match="All 2 steps"):
        short.match()
    strict = PrivacyPlan.from_epsilon(epsilon=0.1, delta=1e-5, sampling_rate=1.0, n_steps=24)
    with pytest.raises(NotImplementedError, match="Noise hides how many"):
        fitted(X, strict).match()


@pytest.mark.parametrize(("deviations", "is_told"), [(4.8, False), (5.2, True)])
def test_sequences_are_told_by_the_noise_of_the_steps_of_the_states(deviations, is_told):
    """Which is larger than that of all steps on average: pairs take two fifths of the budget in one step."""
    model = fitted(sequences(400))
    plan, steps = model.privacy_.plan, model.noisy_totals_.steps
    last = [step for step in steps if step.number > 12]
    std = plan.noise_multiplier * plan.clip_norm * model.blocks()["start"].scale * np.sqrt(23 / (0.6 * 24))
    for step in last:
        step.totals["start"][:] = deviations * std * np.sqrt(K / len(last)) / K
    if is_told:
        assert model.simulator().lengths[0] == 1
    else:
        with pytest.raises(NotImplementedError, match="Noise hides how many"):
            model.simulator()


@pytest.mark.parametrize(("name", "value"), [("start", 1e-300), ("gaussians_mean", 1e99), ("gaussians_factor", 1e-99)])
@pytest.mark.repeated("gaussians_factor-1e-99")
def test_posteriors_of_a_file_at_which_nothing_is_finite_are_refused_in_words(name, value):
    plan = PrivacyPlan.from_epsilon(epsilon=50.0, delta=1e-5, sampling_rate=1.0, n_steps=1)
    steps = np.random.default_rng(0).normal(size=(300, 9, 2)) / 9.0
    model = GaussianHMM(K, n_features=2, max_norm=1.0, privacy=plan).fit(list(steps))
    (step,) = model.noisy_totals_.steps
    arrays = {name: np.array(of) for name, of in step.posterior.to_arrays().items()}
    arrays[name].flat[0] = value
    posterior = type(step.posterior).from_arrays(arrays)
    model.noisy_totals_ = replace(model.noisy_totals_, steps=(replace(step, posterior=posterior),))
    model.forget_computed()
    assert "there are no intervals" in model.why_no_intervals()


def test_sequences_of_one_step_have_one_law_of_lengths():
    simulator = fitted(sequences(400), max_length=1).simulator()
    with np.errstate(all="raise"):
        law = simulator.first_law()
    np.testing.assert_array_equal(law.p, [1.0])
    assert law.size == 0


def test_sequences_that_are_too_long_to_be_simulated_are_refused_in_words():
    """They may be those of a forged file."""
    model = fitted(sequences(400), max_length=10**9)
    for step in model.noisy_totals_.steps[1:]:
        step.totals["moves"][:] *= 1e6
    assert "too long to be simulated" in model.why_no_intervals()


def test_pairs_are_left_out_where_they_are_too_many(monkeypatch):
    """40 symbols have 1,600 pairs."""
    monkeypatch.setattr(ChainSimulator, "sizes", (200, 200, 200))
    for name in ("_FIRST", "_LAST", "_MORE", "_N_STARTS"):
        monkeypatch.setattr(matches, name, 1)
    model = fitted(sequences(300), n_symbols=40)
    assert [step.number for step in model.noisy_totals_.steps] == list(range(2, 25))
    assert model.match().charts[-1].p.shape == (2, 40)
    assert model.match().degrees < 172 - 3


@pytest.mark.slow
@pytest.mark.usefixtures("many_generated_sequences")
def test_intervals_of_two_fits_hold(fits):
    check_that_intervals_hold(fits)


@pytest.mark.slow
@pytest.mark.usefixtures("many_generated_sequences")
@pytest.mark.parametrize("mutant", [clips_are_forgotten, missing_steps_are_forgotten])
def test_mutants_are_noticed(mutant, fits, monkeypatch):
    for name, value in (("_N_STARTS", 0), ("check_told", lambda *_: None)):  # no other start helps, nor a refusal
        monkeypatch.setattr(matches, name, value)
    monkeypatch.setattr(matching, "check_told", lambda *_: None)
    monkeypatch.setattr(Match, "check", lambda _: None)
    mutants = [replaced_fit(model) for model in fits]
    check_notices(lambda: check_that_intervals_hold(mutants), mutant, monkeypatch, "intervals hold")


@pytest.mark.slow
@pytest.mark.usefixtures("many_generated_sequences")
def test_states_that_stay_for_a_fixed_time_are_refused():
    rng = np.random.default_rng(0)
    phases = (rng.integers(0, 6, 12_000)[:, None] + np.arange(12)) // 3 % 2
    codes = (rng.random((*phases.shape, 1)) >= np.cumsum(EMISSIONS, axis=1)[phases]).sum(axis=-1)
    model = fitted(
        list(codes), PrivacyPlan.from_epsilon(epsilon=8.0, delta=1e-5, sampling_rate=1.0, n_steps=24), n_symbols=4
    )
    assert model.match().misfit > 3.0
    assert "not those of such records" in model.why_no_intervals()
    np.testing.assert_array_equal(model.transmat_, model.last_posterior_.means_of_chain()[1])
    assert "lower" not in model.summary().columns


@pytest.mark.slow
@pytest.mark.usefixtures("many_generated_sequences")
def test_persons_of_equal_sequences_have_intervals_that_hold():
    X = sequences(4_000, seed=3)
    twice = Sequences(np.concatenate([X.values, X.values]), np.append(X.offsets, X.offsets[-1] + X.offsets[1:]))
    models = [fitted(twice, groups=np.tile(np.arange(4_000), 2), random_state=seed) for seed in range(6)]
    assert [model.why_no_intervals() for model in models] == [""] * 6
    check_that_intervals_hold(models)


@pytest.mark.slow
@pytest.mark.usefixtures("many_generated_sequences")
def test_states_of_counts_and_vectors_are_matched():
    rng = np.random.default_rng(0)
    states = (rng.random((5_000, 12)) < 0.2).cumsum(axis=1) % 2
    plan = replace(PLAN, reproducible_noise=True)
    counts = PoissonHMM(2, max_count=20, n_features=1, typical_length=12, privacy=plan, random_state=0)
    vectors = GaussianHMM(2, max_norm=3.0, n_features=1, typical_length=12, privacy=plan, random_state=0)
    counts.fit(list(rng.poisson(np.where(states, 5.0, 1.0))))
    vectors.fit(list(np.where(states, 1.0, 0.0) + 0.4 * rng.normal(size=states.shape)))
    rates, means = counts.posterior_.columns["counts"], vectors.posterior_.draws["means"]
    for model, part, truth in ((counts, rates, [1.0, 5.0]), (vectors, means, [0.0, 1.0])):
        std, order = np.sqrt(part.var).ravel(), np.argsort(part.mean.ravel())
        z = (part.mean.ravel()[order] - truth) / std[order]
        assert np.abs(z).max() < 4.0
        assert std.max() < 0.1
        moves = model.posterior_.draws["moves"]
        assert (np.abs(np.diagonal(moves.mean) - 0.8) / np.diagonal(moves.std)).max() < 4.0
