"""A linear dynamical system from released moments alone.

1. The lagged covariances, as a block Hankel matrix, have the rank of the state: its singular vectors give C and A (Ho and
   Kalman, 1966). Components whose singular values noise explains are left out.
2. EM on the likelihood of windows, from the same moments (``windows.py``).
3. Offset and mean of the first state, by weighted least squares, from the means of the first steps and of all steps.
4. EM on the first window of a sequence, for the first state.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from vips.core.exact.blas import eigh
from vips.models.dynamics.moments import LaggedMoments, Pairs, window
from vips.models.dynamics.posterior import Dynamics, stable
from vips.models.dynamics.update import raised
from vips.models.dynamics.windows import log_likelihood, opened, refined

__all__ = ["system_of"]

_LARGEST = 0.999  # modulus of an eigenvalue of A
_LEAST = 0.005  # of the noise variances and of moves_cov, as shares of all
_STANDS_OUT = 0.5  # singular value of a component, in units of a bound of those that noise alone would have
_ITERATIONS, _AGAIN, _OPENING = 300, 100, 200  # of EM
_PASSES, _SPREAD = 4, 0.2  # of least squares; of the effect of a first mean on that of all steps


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
    second, systems = _window_of(moments, offset, variances), []
    for of in _starts(covariances, variances, moments, n_components):
        systems.append(refined(of, second, _ITERATIONS, _LARGEST, least))
    if not systems:
        return Dynamics.idle(n_components, offset, variances)
    of = max(systems, key=lambda of: log_likelihood(of, second, np.zeros(len(second))))
    offset, start = _means(of, moments, variances)
    of = refined(replace(of, offset=offset), _window_of(moments, offset, variances), _AGAIN, _LARGEST, least)
    return _opened(replace(of, start=start), moments, variances, least).widened(n_components)


def _starts(covariances, variances, moments: LaggedMoments, n_components: int) -> Iterator[Dynamics]:
    """Systems at which EM may begin: by lagged covariances, and by those of single steps; none where noise hides both."""
    noise = moments.lags.noise_std
    unit = np.sqrt(np.maximum(variances, 0.1 * variances.mean()) if noise > 0.0 else variances)
    scaled, noise = covariances / np.outer(unit, unit), noise / unit.min() ** 2
    if moments.n_lags:
        yield from _subspace(scaled, unit, noise / moments.lags.counts[-1].mean(), moments.means, n_components)
    yield from _static(scaled, unit, noise / moments.n_steps, moments.means, n_components)


def _subspace(scaled, unit, noise: float, offset, n_components: int) -> Iterator[Dynamics]:
    """By singular vectors of the lagged covariances; ``noise`` is its deviation in an entry."""
    n_lags, p = len(scaled) - 1, len(unit)
    b = (n_lags + 1) // 2
    a = n_lags + 1 - b
    hankel = np.block([[scaled[i + j + 1] for j in range(b)] for i in range(a)])
    left, values, _ = np.linalg.svd(hankel)
    noise_value = noise * (np.sqrt(a * p) + np.sqrt(b * p))
    K = int((values[:n_components] > max(_STANDS_OUT * noise_value, 1e-10 * values[0], 1e-290)).sum())
    if K == 0:
        return
    seen = left[:, :K] * np.sqrt(values[:K])
    moves = np.linalg.lstsq(seen[:-p], seen[p:], rcond=1e-10)[0] if a > 1 else 0.5 * np.eye(K)
    moves = stable(moves, 0.99)
    loadings = seen[:p]
    states = _states_of(moves, loadings, scaled)
    lowest = max(0.02 * np.abs(np.linalg.eigvalsh(states)).mean(), 0.02)  # states have a scale of about 1
    states = raised(states, lowest)
    moves_cov = raised(states - moves @ states @ moves.T, lowest)
    share = np.maximum(np.diag(scaled[0]) - np.einsum("pk,kl,pl->p", loadings, states, loadings), 0.05)
    yield Dynamics(moves, moves_cov, loadings * unit[:, None], offset, share * unit**2, np.zeros(K), states)


def _static(scaled, unit, noise: float, offset, n_components: int) -> Iterator[Dynamics]:
    """Principal components that noise does not explain, as states that nothing of the former step is left of."""
    values, vectors = eigh(scaled[0])
    values, vectors = values[::-1][:n_components], vectors[:, ::-1][:, :n_components]
    K = int((values > np.median(values) + noise * np.sqrt(2.0 * len(unit))).sum()) if noise > 0.0 else len(values)
    if K == 0:
        return
    loadings = (vectors * np.sqrt(np.maximum(values, 0.0)))[:, :K] * np.sqrt(0.5)
    share = np.maximum(np.diag(scaled[0]) - np.square(loadings).sum(axis=1), 0.05)
    eye = np.eye(K)
    yield Dynamics(0.0 * eye, eye, loadings * unit[:, None], offset, share * unit**2, np.zeros(K), eye)


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
    entries = np.linalg.lstsq(design, np.concatenate(targets), rcond=1e-10)[0]
    return np.tensordot(entries, whole, axes=1)


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
    sums, counts = _sums(openings)
    maps = np.array([np.mean(powers[:lengths], axis=0), *powers[:w]])
    targets = np.vstack([moments.means, sums / counts])
    # counts are those of p columns together, whose sums have noise of their own
    errors = [
        variances * min(lengths, 5) / moments.n_steps + np.square(moments.lags.noise_of_sums / moments.n_steps) / p
    ]
    errors = np.vstack([*errors, variances * p / counts + p * np.square(openings.noise_of_sums / counts)])
    design = np.concatenate([np.broadcast_to(np.eye(p), (w + 1, p, p)), of.loadings @ maps], axis=2)
    prior = np.hstack([np.zeros((K, p)), np.linalg.inv(np.linalg.cholesky(of.start_cov))])
    start = np.zeros(K)
    for _ in range(_PASSES):
        # how long sequences are beyond their average is not known
        weight = 1.0 / np.sqrt(
            errors + np.outer(np.arange(w + 1) == 0, np.square(_SPREAD * of.loadings @ maps[0] @ start))
        )
        rows = np.vstack([(design * weight[:, :, None]).reshape(-1, p + K), prior])
        solution = np.linalg.lstsq(rows, np.append((targets * weight).ravel(), np.zeros(K)), rcond=None)[0]
        start = solution[p:]
    return solution[:p], start


def _opened(of: Dynamics, moments: LaggedMoments, variances: np.ndarray, least: float) -> Dynamics:
    """With the covariance of the first state of the first windows."""
    openings = moments.openings
    sums, counts = _sums(openings)
    about = openings.about(of.offset).swapaxes(1, 2).reshape(sums.size, sums.size)
    second = 0.5 * (about + about.T)
    return opened(
        of, second, (sums / counts - of.offset).ravel(), _OPENING, openings.noise_std / moments.n_sequences, least
    )


def _sums(openings: Pairs) -> tuple[np.ndarray, np.ndarray]:
    """Sums and numbers of the columns at each step of the first windows, shape (w, p), p times."""
    here = np.arange(len(openings.counts))
    return openings.later[here, here].sum(axis=-1), np.maximum(openings.counts[here, here].sum(axis=-1), 1.0)
