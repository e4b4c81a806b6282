"""A linear dynamical system from released moments alone.

1. The lagged covariances, as a block Hankel matrix, have the rank of the state: its singular vectors give C and A (Ho and
   Kalman, 1966). Components whose singular values noise explains are left out.
2. EM on the likelihood of windows, from the same moments (``windows.py``).
3. Offset and mean of the first state, by weighted least squares, from the means of the first steps and of all steps.
4. EM on the first window of a sequence, for the first state.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from vips._compute.blas import eigh
from vips.models.dynamics.moments import LaggedMoments, window
from vips.models.dynamics.posterior import Dynamics, stable
from vips.models.dynamics.update import raised
from vips.models.dynamics.windows import opened, refined

__all__ = ["system_of"]

_LARGEST = 0.999  # modulus of an eigenvalue of A
_LEAST = 0.005  # of the noise variances and of moves_cov, as shares of all
_STANDS_OUT = 1.5  # singular value of a component, in units of the largest that noise alone would have
_ITERATIONS, _AGAIN, _OPENING = 300, 100, 200  # of EM


def system_of(moments: LaggedMoments, n_components: int, least: float = _LEAST) -> Dynamics:
    """The system of these moments, with a state of ``n_components`` entries.

    Parameters
    ----------
    moments : LaggedMoments
    n_components : int
    least : float
        Of a noise variance, as a share of the column's variance, and so on.
    """
    offset, noise = moments.means, moments.lags.noise_std
    covariances = moments.lags.about(offset)
    variances = np.diag(covariances[0])
    lowest = max(noise / moments.n_steps, 1e-12 * max(np.abs(variances).max(initial=0.0), 1e-280))
    variances = np.maximum(variances, lowest)
    of = _subspace(covariances, variances, moments, n_components, least)
    if of is None:
        return Dynamics.idle(n_components, offset, variances)
    of = refined(of, _window_of(moments, of.offset, variances), _ITERATIONS, _LARGEST, least)
    offset, start = _means(of, moments, variances)
    of = refined(replace(of, offset=offset), _window_of(moments, offset, variances), _AGAIN, _LARGEST, least)
    return _opened(replace(of, start=start), moments, variances, least).widened(n_components)


def _subspace(covariances, variances, moments: LaggedMoments, n_components: int, least: float) -> Dynamics | None:
    """By singular vectors of the lagged covariances; None where noise hides all of them."""
    n_lags, p, noise = moments.n_lags, len(variances), moments.lags.noise_std
    unit = np.sqrt(np.maximum(variances, 0.1 * variances.mean()) if noise > 0.0 else variances)
    scaled = covariances / np.outer(unit, unit)
    if n_lags == 0:
        return _static(scaled, unit, moments.means, n_components, least)
    b = (n_lags + 1) // 2
    a = n_lags + 1 - b
    hankel = np.block([[scaled[i + j + 1] for j in range(b)] for i in range(a)])
    left, values, _ = np.linalg.svd(hankel)
    noise_value = noise / moments.lags.counts[-1].mean() / unit.min() ** 2 * (np.sqrt(a * p) + np.sqrt(b * p))
    K = int((values[:n_components] > max(_STANDS_OUT * noise_value, 1e-10 * values[0], 1e-290)).sum())
    if K == 0:
        return None
    seen = left[:, :K] * np.sqrt(values[:K])
    moves = np.linalg.lstsq(seen[:-p], seen[p:], rcond=1e-10)[0] if a > 1 else 0.5 * np.eye(K)
    moves = stable(moves, 0.99)
    loadings = seen[:p]
    states = _states_of(moves, loadings, scaled)
    lowest = max(least, 0.02) * np.trace(states) / K
    states = raised(states, lowest)
    moves_cov = raised(states - moves @ states @ moves.T, lowest)
    share = np.maximum(np.diag(scaled[0]) - np.einsum("pk,kl,pl->p", loadings, states, loadings), 0.05)
    return Dynamics(moves, moves_cov, loadings * unit[:, None], moments.means, share * unit**2, np.zeros(K), states)


def _static(scaled, unit, offset, n_components: int, least: float) -> Dynamics:
    """Of sequences of one step: principal components."""
    values, vectors = eigh(scaled[0])
    K = min(n_components, len(values))
    loadings = (vectors * np.sqrt(np.maximum(values, 0.0)))[:, ::-1][:, :K] * np.sqrt(0.5)
    share = np.maximum(np.diag(scaled[0]) - np.square(loadings).sum(axis=1), 0.05)
    eye = np.eye(K)
    return Dynamics(0.0 * eye, eye, loadings * unit[:, None], offset, share * unit**2, np.zeros(K), eye)


def _states_of(moves: np.ndarray, loadings: np.ndarray, scaled: np.ndarray) -> np.ndarray:
    """Covariance P of the state, by least squares of C A^k P Cᵀ; at lag 0 off the diagonal."""
    p, K = loadings.shape
    rows, targets, power = [], [], np.eye(K)
    for k, covariance in enumerate(scaled):
        used = np.ones((p, p), bool) if k else ~np.eye(p, dtype=bool)
        rows.append(np.einsum("ia,jb->ijab", loadings @ power, loadings)[used].reshape(-1, K * K))
        targets.append(covariance[used])
        power = moves @ power
    upper = np.triu_indices(K)
    whole = np.zeros((len(upper[0]), K, K))
    whole[np.arange(len(upper[0])), upper[0], upper[1]] = 1.0
    whole[np.arange(len(upper[0])), upper[1], upper[0]] = 1.0
    design = np.vstack(rows) @ whole.reshape(len(whole), -1).T
    found = np.linalg.lstsq(design, np.concatenate(targets), rcond=1e-10)[0]
    return np.tensordot(found, whole, axes=1)


def _window_of(moments: LaggedMoments, offset: np.ndarray, variances: np.ndarray) -> np.ndarray:
    """Second moments of windows anywhere, about the offset."""
    about, w = moments.lags.about(offset), moments.n_lags + 1
    products = np.array([[about[i - j] if i >= j else about[j - i].T for j in range(w)] for i in range(w)])
    return window(products, moments.lags.noise_std / moments.n_steps, variances)


def _means(of: Dynamics, moments: LaggedMoments, variances: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Offset, and mean of the first state: the steps' means are C A^t m0 + d."""
    (p, K), w, openings = of.loadings.shape, moments.n_lags + 1, moments.openings
    lengths = int(np.clip(moments.n_steps / moments.n_sequences, 1.0, 10_000.0))
    powers = [np.eye(K)]
    for _ in range(max(lengths, w) - 1):
        powers.append(of.moves @ powers[-1])
    here = np.arange(w)
    sums, counts = openings.later[here, here].sum(axis=-1), np.maximum(openings.counts[here, here].sum(axis=-1), 1.0)
    maps = np.array([np.mean(powers[:lengths], axis=0), *powers[:w]])
    targets = np.vstack([moments.means, sums / counts])
    # counts are those of p columns together
    spread = variances * p / counts + p * np.square(openings.noise_std / counts / np.sqrt(variances.mean()))
    errors = np.vstack([variances * min(lengths, 5) / moments.n_steps, spread])
    design = np.concatenate([np.broadcast_to(np.eye(p), (w + 1, p, p)), of.loadings @ maps], axis=2)
    weight = 1.0 / np.sqrt(errors)
    prior = np.hstack([np.zeros((K, p)), np.linalg.inv(np.linalg.cholesky(of.start_cov))])
    design = np.vstack([(design * weight[:, :, None]).reshape(-1, p + K), prior])
    found = np.linalg.lstsq(design, np.append((targets * weight).ravel(), np.zeros(K)), rcond=None)[0]
    return found[:p], found[p:]


def _opened(of: Dynamics, moments: LaggedMoments, variances: np.ndarray, least: float) -> Dynamics:
    """With the first state of the first windows."""
    openings, w, p = moments.openings, moments.n_lags + 1, len(variances)
    here = np.arange(w)
    sums, counts = openings.later[here, here].sum(axis=-1), np.maximum(openings.counts[here, here].sum(axis=-1), 1.0)
    noise = openings.noise_std / moments.n_sequences
    second = window(openings.about(of.offset), noise, variances)
    doubt = noise * np.sqrt(w * p) / variances.mean()
    return opened(of, second, (sums / counts - of.offset).ravel(), _OPENING, doubt, least)
