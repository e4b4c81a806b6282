"""The likelihood of windows of w steps, from second moments alone: EM that needs no record.

Given the parameters, the states of a window are a linear function of what is seen in it, plus noise that does not depend on
it. So the expected statistics of all windows follow from the sum of u uᵀ, u = (y_1, …, y_w), which released moments give.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from vips.models.dynamics.posterior import Dynamics, stable
from vips.models.dynamics.update import divided_by, raised

__all__ = ["Expected", "expected", "log_likelihood", "opened", "refined"]

_DOUBT = 30.0  # one over the deviation of a first covariance, relative to that of states anywhere
_TOL = 1e-7  # of the log likelihood of a step, in one iteration


@dataclass(frozen=True, repr=False)
class Expected:
    """Averages over windows of what is expected of their states, given what is seen; about the offset.

    Parameters
    ----------
    mean : ndarray of shape (w, K)
    second : ndarray of shape (w, K, w, K)
        E x xᵀ.
    cross : ndarray of shape (p, K)
        Σ_t E y_t x_tᵀ.
    """

    mean: np.ndarray
    second: np.ndarray
    cross: np.ndarray


def _prior(of: Dynamics, w: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean, shape (wK,), and covariance of the states of a window that begins with the first state."""
    K = len(of.start)
    mean, cov = np.empty((w, K)), np.empty((w, K, w, K))
    mean[0], cov[0, :, 0] = of.start, of.start_cov
    for i in range(1, w):
        mean[i] = of.moves @ mean[i - 1]
        cov[i, :, :i] = (of.moves @ cov[i - 1, :, :i].reshape(K, i * K)).reshape(K, i, K)
        cov[:i, :, i] = cov[i, :, :i].transpose(1, 2, 0)
        cov[i, :, i] = cov[i, :, i - 1] @ of.moves.T + of.moves_cov
    return mean.ravel(), cov.reshape(w * K, w * K)


Posterior = tuple[np.ndarray, np.ndarray, np.ndarray, float]


def _posterior(of: Dynamics, w: int) -> Posterior:
    """Prior mean; gain G (wK, wp); covariance of the states given a window; and log|Cov(u)|."""
    (p, K), (mean, cov) = of.loadings.shape, _prior(of, w)
    weighted = of.loadings / of.noise_variance[:, None]
    # (Cov⁻¹ + J)⁻¹ = Cov (I + J Cov)⁻¹, for which the covariance may be singular; J has w equal blocks
    inner = np.eye(w * K) + ((of.loadings.T @ weighted) @ cov.reshape(w, K, w * K)).reshape(w * K, w * K)
    after = np.linalg.solve(inner.T, cov).T
    after = 0.5 * (after + after.T)
    gain = (after.reshape(w * K, w, K) @ weighted.T).reshape(w * K, w * p)
    return mean, gain, after, float(np.linalg.slogdet(inner)[1] + w * np.log(of.noise_variance).sum())


def expected(of: Dynamics, second: np.ndarray, mean: np.ndarray, known: Posterior | None = None) -> Expected:
    """What windows show whose columns, less the offset, have these second moments, shape (wp, wp), and means, shape (wp,).

    ``known`` is ``_posterior(of, w)``, where it was computed before.
    """
    p, K = of.loadings.shape
    w = len(second) // p
    prior, gain, after, _ = known or _posterior(of, w)
    shift = prior - gain @ _seen(of, prior, w)
    states = gain @ mean + shift
    moments = (
        gain @ second @ gain.T + np.outer(gain @ mean, shift) + np.outer(shift, gain @ mean) + np.outer(shift, shift)
    )
    cross = (second @ gain.T + np.outer(mean, shift)).reshape(w, p, w, K)
    return Expected(states.reshape(w, K), (moments + after).reshape(w, K, w, K), np.einsum("tptk->pk", cross))


def log_likelihood(of: Dynamics, second: np.ndarray, mean: np.ndarray, known: Posterior | None = None) -> float:
    """Average over windows of their log likelihood, for each step. Arguments as those of :func:`expected`."""
    (p, K), w = of.loadings.shape, len(second) // len(of.offset)
    prior, gain, _, log_det = known or _posterior(of, w)
    seen = _seen(of, prior, w)
    # the trace of Cov(u)⁻¹ A, where Cov(u)⁻¹ = R⁻¹ - R⁻¹ H G and A = E (u - seen) (u - seen)ᵀ, without products of (wp, wp)
    squares = (np.diag(second) + seen * (seen - 2.0 * mean)).reshape(w, p)
    states = gain @ second + np.outer(gain @ seen, seen - mean) - np.outer(gain @ mean, seen)
    explained = np.einsum("tktp->pk", states.reshape(w, K, w, p)) * of.loadings
    trace = ((squares.sum(axis=0) - explained.sum(axis=1)) / of.noise_variance).sum()
    return -0.5 * (log_det + trace + w * p * np.log(2.0 * np.pi)) / w


def _seen(of: Dynamics, states: np.ndarray, w: int) -> np.ndarray:
    return (states.reshape(w, -1) @ of.loadings.T).ravel()


def refined(of: Dynamics, second: np.ndarray, n_iter: int, largest: float, least: float) -> Dynamics:
    """EM on windows anywhere in a sequence: all parameters but the offset. The first state of a window has mean 0 and the
    covariance ``start_cov``.

    Parameters
    ----------
    of : Dynamics
    second : ndarray of shape (wp, wp)
        Moments about the offset.
    n_iter : int
    largest : float
        Modulus of an eigenvalue of the moves.
    least : float
        Of a noise variance, as a share of its column's second moment; of an eigenvalue of ``moves_cov``, as a share of the mean
        one of the states.
    """
    p, K = of.loadings.shape
    w, nothing, before = len(second) // p, np.zeros(len(second)), -np.inf
    seen = np.diag(second).reshape(w, p).mean(axis=0)
    of = replace(of, start=np.zeros(K))
    known = _posterior(of, w)
    for _ in range(n_iter):
        expectation = expected(of, second, nothing, known)
        states = np.einsum("tktl->kl", expectation.second)
        loadings = divided_by(states, expectation.cross)
        residual = (
            seen - (2.0 * (loadings * expectation.cross).sum(axis=1) - ((loadings @ states) * loadings).sum(axis=1)) / w
        )
        moves, moves_cov = of.moves, of.moves_cov
        if w > 1:
            cross = sum(expectation.second[t, :, t - 1] for t in range(1, w))
            earlier, later = states - expectation.second[-1, :, -1], states - expectation.second[0, :, 0]
            moves = divided_by(earlier, cross)
            moves_cov = (later - moves @ cross.T - cross @ moves.T + moves @ earlier @ moves.T) / (w - 1)
        of = Dynamics(
            stable(moves, largest), raised(moves_cov, least * np.trace(states) / (w * K)), loadings, of.offset,
            np.maximum(residual, least * seen), of.start,
            raised(expectation.second[0, :, 0], least * np.trace(states) / (w * K)),
        )  # fmt: skip
        known = _posterior(of, w)
        now = log_likelihood(of, second, nothing, known)
        if not now - before > _TOL:
            break
        before = now
    return of


def opened(of: Dynamics, second: np.ndarray, mean: np.ndarray, n_iter: int, noise_std: float, least: float) -> Dynamics:
    """EM on windows at the beginning of a sequence, for the covariance of the first state only.

    Parameters
    ----------
    of : Dynamics
        With ``start_cov`` that of states anywhere, to which the covariance is drawn where noise hides it.
    second, mean : ndarray of shape (wp, wp), (wp,)
        About the offset.
    n_iter : int
    noise_std : float
        Of the noise in ``second``.
    least : float
        Of an eigenvalue of the covariance, as a share of the mean one.
    """
    prior, before, K = of.start_cov, -np.inf, len(of.start)
    lowest, w = least * np.trace(prior) / K, len(second) // len(of.offset)
    known = _posterior(of, w)
    gain = known[1][:K]
    doubt = np.square(_DOUBT * noise_std * np.square(gain).sum() / np.trace(prior))
    for _ in range(n_iter):
        expectation = expected(of, second, mean, known)
        shift = np.outer(expectation.mean[0], of.start)
        cov = expectation.second[0, :, 0] - shift - shift.T + np.outer(of.start, of.start)
        of = replace(of, start_cov=raised((cov + doubt * prior) / (1.0 + doubt), lowest))
        known = _posterior(of, w)
        now = log_likelihood(of, second, mean, known)
        if not abs(now - before) > _TOL:
            break
        before = now
    return of
