"""Sigmoid belief networks against enumeration, numerical derivatives and the textbook's one-at-a-time updates."""

import itertools
import warnings
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import expit, log_expit, logsumexp

from vips import PrivacyPlan, SigmoidBeliefNetwork
from vips.datasets import load_digits_binary
from vips.expfam import DiagonalGaussian, Gaussian, polya_gamma_mean
from vips.models.belief_networks import kernels
from vips.models.belief_networks.inference import infer
from vips.models.belief_networks.posterior import NetworkPosterior
from vips.models.belief_networks.prior import Shrinkage
from vips.models.belief_networks.update import CENTRE

N_VISIBLE, N_HIDDEN = 7, 3
MANY = 300  # sweeps: to convergence


def posterior_of(weights, visible, hidden, precision=50.0, full=False, prior="normal"):
    """A posterior at these means; precisions differ between weights, and with ``full`` they are correlated."""
    rng = np.random.default_rng(4)
    n_visible, n_hidden = weights.shape
    spread = precision * rng.uniform(0.5, 2.0, weights.shape)
    law = DiagonalGaussian(weights, spread)
    if full:
        factors = rng.normal(size=(n_visible, n_hidden, n_hidden)) * np.sqrt(precision / n_hidden)
        law = Gaussian(weights, factors @ np.swapaxes(factors, -1, -2) + spread[:, :, None] * np.eye(n_hidden))
    biases = [DiagonalGaussian(bias, np.full(bias.shape, precision)) for bias in (visible, hidden)]
    coupling = 0.2 * weights.T @ weights
    return NetworkPosterior(law, *biases, Shrinkage.start(prior, *weights.shape), coupling, weights, 0.0 * weights)


def random_posterior(seed=0, scale=1.5, **arguments):
    rng = np.random.default_rng(seed)
    parts = rng.normal(size=(N_VISIBLE, N_HIDDEN)), rng.normal(size=N_VISIBLE), rng.normal(size=N_HIDDEN)
    return posterior_of(*(scale * part for part in parts), **arguments)


def coins(n, width=N_VISIBLE, seed=1):
    return (np.random.default_rng(seed).random((n, width)) < 0.5).astype(float)


def prepared(X, covariance="diagonal", **arguments):
    """A model that can compute statistics, as inside ``fit``."""
    model = SigmoidBeliefNetwork(N_HIDDEN, covariance=covariance, max_iter=MANY, **arguments)
    model.n_features_in_ = X.shape[1]
    return model


# -- the E-step -------------------------------------------------------------------------------------------------


def exact_logit(y, z, k, posterior, observed):
    """The mean-field update of unit k of one record, written down term by term."""
    weights = posterior.weights
    cov = weights.cov
    logit = posterior.hidden_bias.mean[k]
    for j in np.flatnonzero(observed):
        second = cov[j] + np.outer(weights.mean[j], weights.mean[j])
        psi = weights.mean[j] @ z + posterior.visible_bias.mean[j]
        square = psi**2 + np.sum(z * (1 - z) * np.diag(second)) + z @ cov[j] @ z + posterior.visible_bias.var[j]
        omega = polya_gamma_mean(np.sqrt(square))
        others = sum(second[k, m] * z[m] for m in range(len(z)) if m != k)
        logit += (y[j] - 0.5) * weights.mean[j, k] - omega * (
            others + posterior.visible_bias.mean[j] * weights.mean[j, k] + 0.5 * second[k, k]
        )
    return logit


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_hidden_units_are_a_fixed_point_of_the_exact_updates(full, masked):
    posterior, y = random_posterior(full=full, precision=5.0), coins(6)
    observed = np.random.default_rng(2).random(y.shape) < 0.6 if masked else None
    units = infer(y, posterior, MANY, observed)
    for n in range(len(y)):
        is_seen = np.ones(N_VISIBLE, bool) if observed is None else observed[n]
        for k in range(N_HIDDEN):
            assert units.mean[n, k] == pytest.approx(
                expit(exact_logit(y[n], units.mean[n], k, posterior, is_seen)), abs=1e-9
            )


def test_many_units_in_blocks_reach_the_same_fixed_point():
    """More units than one block, many of which compete."""
    rng = np.random.default_rng(3)
    posterior = posterior_of(rng.normal(size=(12, 40)), rng.normal(size=12), rng.normal(size=40) - 1.0)
    y = coins(4, 12)
    units = infer(y, posterior, 400)
    for k in (0, 15, 16, 39):
        expected = expit(exact_logit(y[0], units.mean[0], k, posterior, np.ones(12, bool)))
        assert units.mean[0, k] == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize("full", [False, True])
def test_row_by_row_arithmetic_agrees_with_blas(full):
    posterior, y = random_posterior(full=full), coins(20)
    fast, alone = infer(y, posterior, 5), infer(y, posterior, 5, alone=True)
    np.testing.assert_allclose(alone.mean, fast.mean, rtol=1e-10)
    np.testing.assert_allclose(alone.residual, fast.residual, rtol=1e-9, atol=1e-12)
    one = infer(y[[7]], posterior, 5, alone=True)
    np.testing.assert_array_equal(one.mean[0], alone.mean[7])  # to the last bit
    np.testing.assert_array_equal(one.omega[0], alone.omega[7])


def test_single_precision_is_close():
    posterior, y = random_posterior(), coins(20)
    single = infer(y.astype(np.float32), posterior, 5)
    assert single.mean.dtype == np.float32
    np.testing.assert_allclose(single.mean, infer(y, posterior, 5).mean, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_kernels_mean_of_omega(dtype):
    psi = np.concatenate([np.linspace(0.0, 1.0, 2001), np.linspace(1.0, 60.0, 2001), [1e3, 1e8, 1e18]]).astype(dtype)
    omega, residual = np.empty((1, len(psi)), dtype), np.empty((1, len(psi)), dtype)
    zeros = np.zeros(len(psi), dtype)
    kernels.residuals(zeros[None], zeros, zeros, psi[None].copy(), zeros[None].copy(), None, omega, residual)
    expected = polya_gamma_mean(psi.astype(float))
    np.testing.assert_allclose(omega[0], expected, rtol=2e-13 if dtype == np.float64 else 3e-7)
    np.testing.assert_allclose(residual[0], -0.5 - expected * psi, rtol=1e-6)


# -- the bound --------------------------------------------------------------------------------------------------


def log_evidence(y, weights, visible, hidden):
    """log p(y | W, c, b) of each record by enumeration over z."""
    terms = []
    for z in itertools.product((0.0, 1.0), repeat=len(hidden)):
        z = np.array(z)
        psi = weights @ z + visible
        prior = (log_expit(hidden) * z + log_expit(-hidden) * (1 - z)).sum()
        terms.append(prior + (y * log_expit(psi) + (1 - y) * log_expit(-psi)).sum(axis=1))
    return logsumexp(terms, axis=0)


@pytest.mark.parametrize("n_hidden", [1, 4, pytest.param(8, marks=pytest.mark.slow)])
@pytest.mark.parametrize("full", [False, True])
def test_bound_is_below_the_exact_evidence(n_hidden, full):
    rng = np.random.default_rng(n_hidden)
    for scale in (0.3, 2.0):
        parts = scale * rng.normal(size=(N_VISIBLE, n_hidden)), rng.normal(size=N_VISIBLE), rng.normal(size=n_hidden)
        y = coins(30)
        known = posterior_of(*parts, precision=1e10, full=full)
        for max_iter in (1, 50):  # below the evidence wherever the updates stop
            gap = log_evidence(y, *parts) - infer(y, known, max_iter).bounds(known)
            assert (gap > -1e-7).all()
        # and, with uncertain parameters, below the average of exact log evidences
        vague = posterior_of(*parts, precision=3.0, full=full)
        draws = zip(
            *(law.sample(500, rng) for law in (vague.weights, vague.visible_bias, vague.hidden_bias)), strict=True
        )
        exact = np.array([log_evidence(y, *draw) for draw in draws])
        error = exact.std(axis=0) / np.sqrt(len(exact))
        assert (infer(y, vague, 50).bounds(vague) < exact.mean(axis=0) + 4.0 * error).all()


def test_bound_is_tight_without_weights():
    rng = np.random.default_rng(0)
    visible, hidden = rng.normal(size=N_VISIBLE), rng.normal(size=N_HIDDEN)
    posterior, y = posterior_of(np.zeros((N_VISIBLE, N_HIDDEN)), visible, hidden, precision=1e12), coins(10)
    exact = (y * log_expit(visible) + (1 - y) * log_expit(-visible)).sum(axis=1)
    np.testing.assert_allclose(infer(y, posterior, 3).bounds(posterior), exact, rtol=1e-9)


@pytest.mark.slow
def test_bound_of_parameters_and_records_is_below_the_integrated_evidence():
    """The whole model, with weights and biases integrated out by draws from the prior."""
    rng = np.random.default_rng(0)
    y = np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0], [1.0, 1.0]])
    n = 400_000
    weights, visible, hidden = rng.normal(size=(n, 2)), 10.0 * rng.normal(size=(n, 2)), 10.0 * rng.normal(size=n)
    log_likelihood = 0.0
    for record in y:
        off, on = (((2 * record - 1) * (visible + z * weights)) for z in (0.0, 1.0))
        terms = [log_expit(-hidden) + log_expit(off).sum(axis=1), log_expit(hidden) + log_expit(on).sum(axis=1)]
        log_likelihood = log_likelihood + logsumexp(terms, axis=0)
    evidence = logsumexp(log_likelihood) - np.log(n)
    plan = PrivacyPlan.non_private(n_steps=100)
    model = SigmoidBeliefNetwork(1, covariance="full", penalty="normal", privacy=plan, max_iter=50, random_state=0).fit(
        y
    )
    assert evidence - 6.0 < model.bound(y, model.last_posterior_) < evidence


def test_divergence_from_the_prior_against_draws():
    from scipy import stats

    rng = np.random.default_rng(0)
    for prior in ("normal", "tpbn"):
        posterior = random_posterior(scale=0.5, prior=prior)
        shrinkage = posterior.shrinkage.updated(posterior.weights.mean**2 + posterior.weights.var)
        posterior = replace(posterior, shrinkage=shrinkage)
        n = 20_000
        w, c, b = (law.sample(n, rng) for law in (posterior.weights, posterior.visible_bias, posterior.hidden_bias))
        ratio = stats.norm.logpdf(w, posterior.weights.mean, posterior.weights.std).sum(axis=(1, 2))
        for draws, law in ((c, posterior.visible_bias), (b, posterior.hidden_bias)):
            ratio += (stats.norm.logpdf(draws, law.mean, law.std) - stats.norm.logpdf(draws, 0.0, 10.0)).sum(axis=1)
        if prior == "normal":
            ratio -= stats.norm.logpdf(w).sum(axis=(1, 2))
        else:
            zeta, xi, phi, omega = (
                getattr(shrinkage, name) for name in ("variance", "local_rate", "unit_rate", "global_rate")
            )
            z, x, p, o = (law.sample(n, rng) for law in (zeta, xi, phi, omega))
            scale = np.sqrt(zeta.inverse_rate / zeta.rate)
            q_zeta = stats.geninvgauss(0.0, np.sqrt(zeta.rate * zeta.inverse_rate), scale=scale)
            ratio += q_zeta.logpdf(z).sum(axis=(1, 2)) - stats.norm.logpdf(w, 0.0, np.sqrt(z)).sum(axis=(1, 2))
            for draws, law, rate in ((z, None, x), (x, xi, p[:, None, :]), (p, phi, o[:, None]), (o, omega, 1.0)):
                axes = tuple(range(1, draws.ndim))
                ratio -= stats.gamma.logpdf(draws, 0.5, scale=1.0 / rate).sum(axis=axes)
                if law is not None:
                    ratio += stats.gamma.logpdf(draws, law.shape, scale=1.0 / law.rate).sum(axis=axes)
        assert posterior.divergence() == pytest.approx(ratio.mean(), abs=5.0 * ratio.std() / np.sqrt(n))


# -- statistics and the M-step ----------------------------------------------------------------------------------


@pytest.mark.parametrize("covariance", ["diagonal", "full"])
def test_statistics_are_the_derivatives_of_the_bound(covariance):
    full = covariance == "full"
    posterior, y = random_posterior(full=full, precision=20.0), coins(8)
    statistics = prepared(y, covariance).expected_statistics(y, posterior)
    sums = statistics.weighted_sum(np.ones(8))

    def bound(weights=None, visible=None):
        """With optimal hidden units, whose change adds nothing to a derivative at the optimum."""
        changed = posterior
        if weights is not None:
            law = type(posterior.weights)(weights, posterior.weights.precision)
            changed = replace(changed, weights=law)
        if visible is not None:
            changed = replace(changed, visible_bias=DiagonalGaussian(visible, posterior.visible_bias.precision))
        return infer(y, changed, MANY).bounds(changed).sum()

    step = 1e-5
    for j, k in ((0, 0), (3, 2), (6, 1)):
        e = np.zeros((N_VISIBLE, N_HIDDEN))
        e[j, k] = step
        slope = (bound(posterior.weights.mean + e) - bound(posterior.weights.mean - e)) / (2 * step)
        assert sums["weights"][j, k] + CENTRE * sums["visible"][j] == pytest.approx(slope, rel=1e-5, abs=1e-6)
        e = step * (np.arange(N_VISIBLE) == j)
        slope = (bound(None, posterior.visible_bias.mean + e) - bound(None, posterior.visible_bias.mean - e)) / (
            2 * step
        )
        assert sums["visible"][j] == pytest.approx(slope, rel=1e-5, abs=1e-6)


@pytest.mark.slow
def test_the_diagonal_fixed_point_is_that_of_one_update_at_a_time():
    """After many damped steps no weight, bias or precision would be moved by its own exact update."""
    X = load_digits_binary().data[:200, 10:22].astype(float)
    plan = PrivacyPlan.non_private(n_steps=3000)
    model = SigmoidBeliefNetwork(2, penalty="normal", privacy=plan, max_iter=15, random_state=3).fit(X)
    posterior = model.last_posterior_
    units = infer(X, posterior, 15)
    z, omega, v = units.mean, units.omega, units.mean * (1 - units.mean)
    weights, c, b = posterior.weights, posterior.visible_bias, posterior.hidden_bias
    for j, k in itertools.product(range(12), range(2)):
        other = 1 - k
        precision = 1.0 + (omega[:, j] * z[:, k]).sum()
        others = weights.mean[j, other] * z[:, other] + c.mean[j]
        linear = (z[:, k] * (X[:, j] - 0.5 - omega[:, j] * others)).sum()
        assert weights.precision[j, k] == pytest.approx(precision, rel=1e-3)
        assert weights.mean[j, k] == pytest.approx(linear / precision, abs=1e-3)
    assert v.max() > 0.01  # some hidden units are not certain, so that the difference of z̄ and z̄² is tested
    precision = 0.01 + omega.sum(axis=0)
    np.testing.assert_allclose(c.precision, precision, rtol=1e-3)
    np.testing.assert_allclose(c.mean, (X - 0.5 - omega * (z @ weights.mean.T)).sum(axis=0) / precision, atol=1e-2)
    xi = polya_gamma_mean(np.sqrt(b.mean**2 + b.var))
    np.testing.assert_allclose(b.precision, 0.01 + len(X) * xi, rtol=1e-3)
    np.testing.assert_allclose(b.mean, (z - 0.5).sum(axis=0) / (0.01 + len(X) * xi), atol=1e-3)


@pytest.mark.parametrize("covariance", ["diagonal", "full"])
def test_no_record_has_a_larger_norm_than_max_record_norm(covariance):
    plan = PrivacyPlan(noise_multiplier=1.0, sampling_rate=1.0, n_steps=1)
    for seed in range(5):
        rng = np.random.default_rng(seed)
        weights = 6.0 * rng.choice([-1.0, 0.0, 1.0], (N_VISIBLE, N_HIDDEN))
        biases = 5.0 * rng.normal(size=N_VISIBLE), rng.normal(size=N_HIDDEN)
        posterior = posterior_of(weights, *biases, full=covariance == "full")
        y = coins(200, seed=seed)
        model = prepared(y, covariance, privacy=plan)
        norms = model.expected_statistics(y, posterior).norms(model.blocks())
        assert norms.max() < model.max_record_norm() < 10.0 * norms.max()


def test_clip_as_a_share_of_the_bound():
    y, plan = coins(50), PrivacyPlan(noise_multiplier=1.0, sampling_rate=1.0, n_steps=1)
    model = SigmoidBeliefNetwork(N_HIDDEN, privacy=plan, clip_share=0.25).fit(y)
    assert model.privacy_.plan.clip_norm == pytest.approx(0.25 * model.max_record_norm())
    default = SigmoidBeliefNetwork(N_HIDDEN, privacy=plan).fit(y)
    assert default.privacy_.plan.clip_norm == pytest.approx(0.02 * np.sqrt(N_VISIBLE * N_HIDDEN))


# -- what users call --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def digits():
    return load_digits_binary().data


@pytest.fixture(scope="module")
def fitted(digits):
    return SigmoidBeliefNetwork(20, privacy=PrivacyPlan.non_private(n_steps=60), random_state=0).fit(digits[:1400])


def hidden_accuracy(model, X, seed=0):
    observed = np.random.default_rng(seed).random(X.shape) < 0.5
    return ((model.reconstruct(X, observed) > 0.5) == X)[~observed].mean()


@pytest.mark.slow
def test_hidden_pixels_are_predicted_better_than_by_the_majority(fitted, digits):
    train, test = digits[:1400], digits[1400:]
    majority = ((train.mean(axis=0) > 0.5) == test).mean()
    assert hidden_accuracy(fitted, test) > majority + 0.06
    plan = PrivacyPlan.from_epsilon(epsilon=8.0, delta=1e-4, sampling_rate=1.0, n_steps=20)
    private = SigmoidBeliefNetwork(10, privacy=plan, random_state=0).fit(train)
    assert hidden_accuracy(private, test) > majority + 0.02
    assert fitted.score(test) > private.score(test)


def test_unobserved_entries_are_not_looked_at(fitted, digits):
    X = digits[:20].astype(float)
    observed = np.random.default_rng(1).random(X.shape) < 0.5
    reference = fitted.transform(X, observed)
    np.testing.assert_array_equal(fitted.transform(np.where(observed, X, np.nan), observed), reference)
    np.testing.assert_array_equal(
        fitted.reconstruct(np.where(observed, X, 7.0), observed), fitted.reconstruct(X, observed)
    )
    np.testing.assert_array_equal(fitted.transform(X, np.ones(X.shape, bool)), fitted.transform(X))
    nothing = fitted.transform(X, np.zeros(X.shape, bool))
    np.testing.assert_allclose(nothing, np.tile(expit(fitted.intercept_hidden_), (20, 1)), rtol=1e-12)
    with pytest.raises(ValueError, match="boolean array of the shape of X"):
        fitted.transform(X, observed[:, :5])
    with pytest.raises(ValueError, match="binary"):
        fitted.transform(np.where(observed, 0.5, X), observed)
    with pytest.raises(ValueError, match="NaN or infinity where it is observed"):
        fitted.transform(np.where(observed, np.nan, X), observed)
    torn = sp.csr_array(X)
    torn.indices[0] = 10**6
    with pytest.raises(ValueError, match="columns that do not exist"):
        fitted.transform(torn)


def test_reconstructions_are_those_of_the_hidden_units(fitted, digits):
    Z = fitted.transform(digits[:20])
    assert Z.shape == (20, 20)
    np.testing.assert_allclose(fitted.inverse_transform(Z), fitted.reconstruct(digits[:20]), rtol=1e-6)
    with pytest.raises(ValueError, match="hidden units"):
        fitted.inverse_transform(Z[:, :3])
    with pytest.raises(ValueError, match="between 0 and 1"):
        fitted.inverse_transform(Z + 2.0)


def test_samples_look_like_the_data(fitted, digits):
    samples, hidden = fitted.sample(4000, random_state=0)
    assert samples.dtype == hidden.dtype == bool
    expected = 1.0 / (1.0 + np.exp(-fitted.intercept_hidden_))
    np.testing.assert_allclose(hidden.mean(axis=0), expected, atol=0.04)
    assert np.corrcoef(samples.mean(axis=0), digits.mean(axis=0))[0, 1] > 0.95
    together = np.corrcoef(np.cov(samples.T)[np.triu_indices(64, 1)], np.cov(digits.T)[np.triu_indices(64, 1)])[0, 1]
    assert together > 0.8


def test_containers_and_dtypes_agree(digits):
    X = digits[:200]
    plan = PrivacyPlan.non_private(n_steps=4)
    fits = [
        SigmoidBeliefNetwork(3, privacy=plan, random_state=0).fit(data).components_
        for data in (
            X,
            X.astype(np.uint8),
            X.astype(float),
            sp.csr_array(X.astype(float)),
            sp.csr_matrix(X.astype(int)),
        )
    ]
    for other in fits[1:]:
        np.testing.assert_array_equal(other, fits[0])
    single = SigmoidBeliefNetwork(3, privacy=plan, random_state=0, dtype=np.float32).fit(X).components_
    np.testing.assert_allclose(single, fits[0], atol=1e-3)


def test_grey_values_are_compared_with_a_threshold(digits):
    X = digits[:100].astype(float)
    grey = np.where(X > 0.5, 9.0, 0.5)
    plan = PrivacyPlan.non_private(n_steps=3)
    expected = SigmoidBeliefNetwork(3, privacy=plan, random_state=0).fit(X)
    for data in (grey, sp.csr_array(grey)):
        model = SigmoidBeliefNetwork(3, privacy=plan, random_state=0, binarize=0.5).fit(data)
        np.testing.assert_array_equal(model.components_, expected.components_)
        np.testing.assert_array_equal(model.transform(data), expected.transform(X))
    with pytest.raises(ValueError, match="`binarize`"):
        SigmoidBeliefNetwork(binarize=np.nan).fit(X)


@pytest.mark.parametrize("covariance", ["diagonal", "full"])
def test_degenerate_data_give_sound_private_fits(covariance):
    plan = PrivacyPlan(noise_multiplier=3.0, sampling_rate=0.7, n_steps=5)
    rows = {
        "none": np.zeros((0, 4)),
        "one": np.ones((1, 4)),
        "all zero": np.zeros((50, 4)),
        "constant columns": np.tile([0.0, 1.0, 0.0, 1.0], (50, 1)),
        "not binary": np.vstack([coins(20, 4), [[0.5, 1.0, 2.0, -3.0], [np.nan, 0, 0, 0]]]),
    }
    for name, X in rows.items():
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.filterwarnings("ignore", "There is no signal")
            model = SigmoidBeliefNetwork(6, covariance=covariance, privacy=plan).fit(
                X
            )  # more hidden units than columns
        arrays = model.last_posterior_.to_arrays()
        assert all(np.isfinite(value).all() for value in arrays.values()), name
        assert np.abs(model.components_).max() <= 6.0
        assert np.isfinite(model.sample(5)[0]).all()


def test_steps_that_begin_without_noise_leave_weights_bounded():
    """A schedule that begins with zeros averages nothing at first: the starting weights take the place of a derivative."""
    plan = PrivacyPlan(noise_multiplier=1.0, sampling_rate=1.0, n_steps=50)
    model = SigmoidBeliefNetwork(3, privacy=plan, schedule=lambda t: 0.5 if t > 39 else 0.0).fit(np.zeros((0, 2)))
    assert np.abs(model.components_).max() <= 6.0


def test_degenerate_data_without_privacy(digits):
    plan = PrivacyPlan.non_private(n_steps=10)
    for X in (np.zeros((30, 4)), np.ones((1, 3)), np.tile([0, 1, 1], (40, 1))):
        model = SigmoidBeliefNetwork(5, privacy=plan, random_state=0).fit(X)
        assert ((model.reconstruct(X) > 0.5) == X).mean() > 0.9
    with pytest.raises(ValueError, match="binary"):
        SigmoidBeliefNetwork(2).fit(np.array([[0.0, 0.5], [1.0, 0.0]]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_components": 0}, "`n_components` must be an integer ≥ 1"),
        ({"n_components": 2.5}, "`n_components`"),
        ({"max_iter": 0}, "`max_iter`"),
        ({"covariance": "spherical"}, "`covariance` must be one of"),
        ({"penalty": "horseshoe"}, "`penalty` must be one of"),
        ({"clip_share": 1.5}, "`clip_share`"),
        ({"dtype": np.float16}, "`dtype`"),
        ({"binarize": "a"}, "`binarize`"),
        ({"clip_share": "a"}, "`clip_share`"),
        ({"schedule": 0.5}, "`schedule`"),
    ],
)
def test_bad_arguments_are_refused_before_the_data_are_touched(arguments, message):
    with pytest.raises(ValueError, match=message):
        SigmoidBeliefNetwork(**arguments).fit("not data")


def test_wrong_width_is_refused(fitted):
    with pytest.raises(ValueError, match="features"):
        fitted.transform(np.zeros((2, 5)))
