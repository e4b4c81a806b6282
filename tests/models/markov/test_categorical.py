"""Hidden Markov models of symbols: against hmmlearn, against all paths, and what one sequence can change."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hmmlearn.vhmm import VariationalCategoricalHMM

from tests.plans import every
from tests.steps import Stop, phase_of, stopped_after
from vips import CategoricalHMM, PrivacyPlan
from vips.data import Sequences
from vips.expfam import Dirichlet
from vips.models.components.categories import Categories
from vips.models.markov.posterior import SymbolPosterior
from vips.models.markov.start import classes_of_symbols, first_classes, states_of_bins

K, V = 3, 6
RNG = np.random.default_rng(0)
DATA = Sequences.from_list([RNG.integers(0, V, n) for n in RNG.integers(1, 30, 40)])
CODES = DATA.values.astype(int)  # as hmmlearn takes them
HOSTILE = [
    np.array([]),
    np.full(30, np.nan),
    np.array([0.0, np.nan, 2.0, np.inf, -1.0, 0.5, 1e300, V, 5.0]),
    np.full(5_000, 3.0),
    np.resize([1.0, 4.0], 999),
]


def at_a_posterior(**arguments):
    model = CategoricalHMM(K, n_symbols=V, random_state=0, **arguments)
    model.n_features_in_ = 1
    draws = np.random.default_rng(1)
    start, moves, emissions = (Dirichlet(draws.gamma(1.0, size=shape) + 0.1) for shape in ((K,), (K, K), (K, V)))
    return model, SymbolPosterior(start, moves, True, emissions, np.zeros((K, V)))


def arrays(posterior):
    return [posterior.start.concentration, posterior.moves.concentration, posterior.emissions.concentration]


def of_hmmlearn(posterior, n_steps):
    model = VariationalCategoricalHMM(K, n_iter=n_steps, tol=-np.inf, init_params="", n_features=V)
    for name, size, array in zip(("startprob", "transmat", "emissionprob"), (K, K, V), arrays(posterior), strict=True):
        setattr(model, f"{name}_prior_", np.full(array.shape, 1.0 / size))
        setattr(model, f"{name}_posterior_", array.copy())
        setattr(model, f"{name}_", array / array.sum(axis=-1, keepdims=True))
    return model.fit(CODES, DATA.lengths)


def test_without_noise_it_is_hmmlearn():
    start, end = (CategoricalHMM(K, n_symbols=V, random_state=3, privacy=every(n)).fit(DATA) for n in (60, 70))
    peer = of_hmmlearn(start.last_posterior_, 10)
    for ours, name in zip(arrays(end.last_posterior_), ("startprob", "transmat", "emissionprob"), strict=True):
        np.testing.assert_allclose(ours, getattr(peer, f"{name}_posterior_"), rtol=1e-9, atol=1e-11)
    # hmmlearn's bound is that of the posterior before its last M-step
    np.testing.assert_allclose(
        start.bound(DATA, start.last_posterior_), of_hmmlearn(start.last_posterior_, 1).monitor_.history[0], rtol=1e-10
    )
    np.testing.assert_allclose(end.score_samples(DATA).sum(), peer.score(CODES, DATA.lengths), rtol=1e-10)
    (ours, states), (theirs, expected) = end.decode(DATA), peer.decode(CODES, DATA.lengths)
    np.testing.assert_allclose(ours, theirs, rtol=1e-10)
    assert np.mean(states == expected) > 0.99  # two paths may be as likely, but for the last bit
    np.testing.assert_allclose(end.predict_proba(DATA), peer.predict_proba(CODES, DATA.lengths), atol=1e-9)


def by_all_paths(codes, posterior):
    """Statistics of one sequence, from the probabilities of all paths."""
    (first, move), tables = posterior.chain, posterior.tables
    start, moves, emissions = np.zeros(K), np.zeros((K, K)), np.zeros((K, V))
    likely = tables.by_symbol * np.exp(tables.log_largest)[:, None]
    seen = [likely[int(code)] if code in range(V) else np.ones(K) for code in codes]
    paths = list(itertools.product(range(K), repeat=len(codes)))
    chances = []
    for path in paths:
        steps = [first[path[0]], *(move[i, j] for i, j in itertools.pairwise(path))]
        chances.append(np.prod(steps) * np.prod([row[k] for row, k in zip(seen, path, strict=True)]))
    total = sum(chances)
    for path, chance in zip(paths, chances, strict=True):
        start[path[0]] += chance / total
        for i, j in itertools.pairwise(path):
            moves[i, j] += chance / total
        for k, code in zip(path, codes, strict=True):
            if code in range(V):
                emissions[k, int(code)] += chance / total
    return {"start": start, "moves": moves, "emissions": emissions}, np.log(total)


@pytest.mark.parametrize("codes", [[2.0], [0.0, 1.0, 1.0, 5.0], [3.0, np.nan, 3.0, 9.0, 0.0]])
def test_statistics_are_those_of_all_paths(codes):
    model, posterior = at_a_posterior()
    record = Sequences.from_list([np.array(codes)])
    statistics = model.expected_statistics(record, posterior)
    expected, log_likelihood = by_all_paths(codes, posterior)
    for name, total in statistics.weighted_sum(np.ones(1)).items():
        np.testing.assert_allclose(total, expected[name], atol=1e-12)
    blocks = phase_of(model, "states").blocks
    norm = np.sqrt(sum((expected[name] ** 2).sum() / block.scale**2 for name, block in blocks.items()))
    np.testing.assert_allclose(statistics.norms(blocks), norm, rtol=1e-8)
    np.testing.assert_allclose(model.inferred(record, posterior)[2], log_likelihood, rtol=1e-12)


def test_pairs_are_counted():
    model, posterior = at_a_posterior(privacy=PrivacyPlan(noise_multiplier=1.0, sampling_rate=1.0, n_steps=60))
    phase = phase_of(model, "pairs")
    statistics = phase.statistics_of(model, Sequences.from_list([*HOSTILE, *DATA]), posterior)
    expected, squares = np.zeros((V, V)), []
    for sequence in [*HOSTILE, *DATA]:
        pairs = np.zeros((V, V))
        for x, y in itertools.pairwise(np.ravel(sequence)[: model.max_length]):
            if x in range(V) and y in range(V):
                pairs[int(x), int(y)] += 1.0
        expected += pairs
        squares.append((pairs**2).sum())
    sums = statistics.weighted_sum(np.ones(len(squares)))
    np.testing.assert_array_equal(sums["pairs"], expected)
    assert set(sums) == {"pairs"}
    np.testing.assert_allclose(statistics.norms(phase.blocks), np.sqrt(squares), rtol=1e-8)


def test_states_are_found_from_pairs():
    """Each state has a symbol of its own, so that the factorisation is unique."""
    rng = np.random.default_rng(7)
    moves = rng.dirichlet(np.ones(3), 3) * np.array([[0.5], [0.2], [0.3]])
    emissions = np.hstack([np.eye(3) * 0.4, 0.6 * rng.dirichlet(np.ones(7), 3)])
    M, B = states_of_bins(1e6 * emissions.T @ moves @ emissions, np.ones((3, 3), bool), Categories((10,)), rng)
    order = B[:, :3].argmax(axis=0)
    np.testing.assert_allclose(B[order], emissions, atol=0.01)
    np.testing.assert_allclose(M[np.ix_(order, order)], moves, atol=0.01)


@pytest.mark.parametrize("n_symbols", [V, 200])
@pytest.mark.parametrize("inference", ["vb", "em"])
@pytest.mark.repeated("vb-200", "em-6")
def test_a_mask_forbids_moves(n_symbols, inference):
    masks = {"startprob_mask": [True, False, False], "transmat_mask": np.triu(np.ones((K, K), bool))}
    plan = PrivacyPlan(noise_multiplier=0.5, sampling_rate=1.0, n_steps=12)
    for privacy in (plan, every(8)):
        model = CategoricalHMM(K, n_symbols=n_symbols, privacy=privacy, inference=inference, random_state=0, **masks)
        model.fit(DATA)
        np.testing.assert_array_equal(model.startprob_, [1.0, 0.0, 0.0])
        assert not np.tril(model.transmat_, -1).any()
        np.testing.assert_allclose(model.transmat_.sum(axis=1), 1.0)
        for states in np.split(model.predict(DATA), DATA.offsets[1:-1]):
            assert states[0] == 0
            assert (np.diff(states) >= 0).all()


@pytest.mark.parametrize(
    ("masks", "message"),
    [
        ({"transmat_mask": np.eye(2)}, "shape"),
        ({"startprob_mask": [0, 0, 0]}, "allow a state"),
        ({"startprob_mask": [2, 1, 0]}, "True"),
    ],
)
def test_a_mask_that_is_none_is_refused(masks, message):
    with pytest.raises(ValueError, match=message):
        CategoricalHMM(K, n_symbols=V, **masks).fit(DATA)


def test_a_fit_goes_on_from_a_checkpoint_of_the_start(tmp_path):
    plan = PrivacyPlan(noise_multiplier=0.5, sampling_rate=1.0, n_steps=30, reproducible_noise=True)
    expected = CategoricalHMM(K, n_symbols=V, privacy=plan, random_state=0).fit(DATA)
    path = tmp_path / "a.checkpoint"
    with pytest.raises(Stop):
        stopped_after(CategoricalHMM(K, n_symbols=V, privacy=plan, random_state=0), 3).fit(DATA, checkpoint=path)
    assert path.exists()
    model = CategoricalHMM(K, n_symbols=V, privacy=plan, random_state=0).fit(DATA, checkpoint=path)
    for array, value in zip(arrays(model.last_posterior_), arrays(expected.last_posterior_), strict=True):
        assert np.isfinite(array).all()
        assert array.shape == value.shape


def test_classes_are_symbols_with_like_neighbours():
    """Symbols 0-4, 5-9, 10-14 follow each other in turn."""
    rng = np.random.default_rng(3)
    follows = np.kron(np.roll(np.eye(3), 1, axis=1), np.full((5, 5), 0.2))
    counts = rng.integers(2_000, 20_000, 15).astype(float)
    classes = first_classes(counts, 3)
    pairs = follows * counts[:, None]
    for _ in range(3):
        profiles = np.vstack([classes.T @ pairs, (pairs @ classes).T])
        profiles += 100.0 * rng.standard_normal(profiles.shape)
        classes = classes_of_symbols(profiles, counts, 100.0, 3, rng)
    labels = classes.argmax(axis=1)
    assert classes.max(axis=1).min() > 0.99
    assert [len(set(labels[i : i + 5])) for i in (0, 5, 10)] == [1, 1, 1]
    assert len(set(labels)) == 3


@pytest.mark.parametrize(("epsilon", "n"), [(4.0, 2_000), pytest.param(1.0, 6_000, marks=pytest.mark.slow)])
def test_private_fits_of_text_like_sequences_learn(epsilon, n):
    rng = np.random.default_rng(4)
    true = CategoricalHMM(3, n_symbols=15)
    parts = (np.ones(3), np.roll(np.eye(3), 1, axis=1) * 50 + 1, np.kron(np.eye(3), np.full(5, 50.0)) + 1)
    start, moves, emissions = map(Dirichlet, parts)
    true.n_features_in_, true.last_posterior_ = 1, SymbolPosterior(start, moves, True, emissions, np.zeros((3, 15)))
    lengths = rng.integers(5, 20, n)
    train = true.sample(n, rng, lengths=lengths)[0]
    test = true.sample(500, rng, lengths=np.full(500, 10))[0]
    plan = PrivacyPlan.from_epsilon(epsilon=epsilon, delta=1e-6, sampling_rate=1.0, n_steps=40)
    model = CategoricalHMM(3, n_symbols=15, privacy=plan, random_state=0).fit(train)
    alone = np.log(np.bincount(train.values[:, 0], minlength=15) / len(train.values))[test.values[:, 0]].sum()
    assert model.score_samples(test).sum() - alone > 0.7 * (true.score_samples(test).sum() - alone)


@pytest.mark.parametrize(
    ("data", "lengths", "error", "message"),
    [
        (np.zeros((5, 1)), None, ValueError, "Pass `lengths`"),
        (np.zeros((5, 1)), [2, 2], ValueError, "add up"),
        (np.zeros((5, 2)), [2, 3], ValueError, "X has 2"),
        (np.array(["a", "b"]), [1, 1], TypeError, "numbers"),
        (DATA, [1], TypeError, "without `lengths`"),
    ],
)
def test_what_is_no_sequence_is_refused(data, lengths, error, message):
    plan = PrivacyPlan(noise_multiplier=2.0, sampling_rate=0.5, n_steps=3)
    with pytest.raises(error, match=message):
        CategoricalHMM(K, n_symbols=V, privacy=plan).fit(data, lengths)


def test_n_symbols_is_required():
    with pytest.raises(ValueError, match="n_symbols"):
        CategoricalHMM(K).fit(DATA)


def test_samples_are_of_the_model():
    model = CategoricalHMM(K, n_symbols=V, random_state=0, privacy=every(3)).fit(DATA)
    drawn, states = model.sample(4_000, 0, lengths=np.full(4_000, 5))
    moves = np.zeros((K, K))
    np.add.at(moves, (states.reshape(-1, 5)[:, :-1].ravel(), states.reshape(-1, 5)[:, 1:].ravel()), 1.0)
    np.testing.assert_allclose(moves / moves.sum(axis=1, keepdims=True), model.transmat_, atol=0.03)
    counts = np.zeros((K, V))
    np.add.at(counts, (states, drawn.values[:, 0]), 1.0)
    np.testing.assert_allclose(counts / counts.sum(axis=1, keepdims=True), model.emissionprob_, atol=0.03)
    of_their_own = model.sample(4_000, 1)[0]
    assert of_their_own.lengths.mean() == pytest.approx(DATA.lengths.mean(), rel=0.1)


def test_a_sequence_of_another_width_is_a_missing_step_wherever_it_stands():
    """The first one, too: no sequence decides how many columns there are."""
    plan = PrivacyPlan(noise_multiplier=2.0, sampling_rate=0.5, n_steps=3)
    model = CategoricalHMM(K, n_symbols=V, privacy=plan).fit([np.zeros((4, 3)), *DATA])
    assert model.n_features_in_ == 1
