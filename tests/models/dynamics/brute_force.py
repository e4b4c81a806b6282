"""Whole sequences as one Gaussian: what the Kalman smoother and EM must give, by dense matrices."""

from __future__ import annotations

import numpy as np

from vips.models.dynamics.posterior import Dynamics


def a_system(K=2, p=3, seed=0) -> Dynamics:
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(rng.normal(size=(K, K)))[0]
    roots = [rng.normal(size=(K, K)) for _ in range(2)]
    return Dynamics(
        0.8 * turn, roots[0] @ roots[0].T + 0.2 * np.eye(K), rng.normal(size=(p, K)), rng.normal(size=p),
        rng.uniform(0.3, 2.0, p), rng.normal(size=K), roots[1] @ roots[1].T + 0.3 * np.eye(K),
    )  # fmt: skip


def joint(of: Dynamics, T: int) -> tuple:
    """Mean and covariance of (x_1, …, x_T), and the map from them to (y_1, …, y_T)."""
    K = len(of.start)
    # x = G (x_1 - m0, w_2, …, w_T) + mean
    G = np.zeros((T * K, T * K))
    for t in range(T):
        for s in range(t + 1):
            G[t * K : (t + 1) * K, s * K : (s + 1) * K] = np.linalg.matrix_power(of.moves, t - s)
    inner = np.zeros((T * K, T * K))
    for t in range(T):
        inner[t * K : (t + 1) * K, t * K : (t + 1) * K] = of.start_cov if t == 0 else of.moves_cov
    mean = np.concatenate([np.linalg.matrix_power(of.moves, t) @ of.start for t in range(T)])
    return mean, G @ inner @ G.T, np.kron(np.eye(T), of.loadings), np.tile(of.offset, T), np.tile(of.noise_variance, T)


def conditioned(of: Dynamics, values: np.ndarray) -> tuple:
    """Mean and covariance of (x_1, …, x_T) given what is not NaN in ``values``, shape (T, p), and its log likelihood."""
    T = len(values)
    mean, cov, H, d, R = joint(of, T)
    seen = np.isfinite(values.ravel())
    H, d, R, y = H[seen], d[seen], R[seen], values.ravel()[seen]
    S = H @ cov @ H.T + np.diag(R)
    error = y - H @ mean - d
    gain = np.linalg.solve(S, H @ cov).T
    log_likelihood = -0.5 * (error @ np.linalg.solve(S, error) + np.linalg.slogdet(2.0 * np.pi * S)[1])
    return mean + gain @ error, cov - gain @ H @ cov, log_likelihood


def statistics(of: Dynamics, values: np.ndarray) -> dict[str, np.ndarray]:
    """The blocks of EM for one sequence."""
    T, p = values.shape
    K = len(of.start)
    mean, cov, _ = conditioned(of, values)
    second = (cov + np.outer(mean, mean)).reshape(T, K, T, K)
    x = mean.reshape(T, K)
    seen, loadings, squares = np.zeros((p, K + 1, K + 1)), np.zeros((p, K + 1)), np.zeros(p)
    for t in range(T):
        whole = np.block([[second[t, :, t], x[t][:, None]], [x[t][None], np.ones((1, 1))]])
        for i in np.flatnonzero(np.isfinite(values[t])):
            seen[i] += whole
            loadings[i] += values[t, i] * np.append(x[t], 1.0)
            squares[i] += values[t, i] ** 2
    return {
        "start": x[0], "begin": second[0, :, 0], "end": second[-1, :, -1],
        "states": sum(second[t, :, t] for t in range(T)),
        "cross": sum((second[t, :, t - 1] for t in range(1, T)), np.zeros((K, K))),
        "seen": seen, "loadings": loadings, "squares": squares, "counts": np.array([1.0, T]),
    }  # fmt: skip


def expected_log_density(of: Dynamics, totals: dict[str, np.ndarray]) -> float:
    """E log p(x, y) for totals of EM's blocks: what an M-step maximises."""
    n, n_steps = totals["counts"]

    def gaussian(second, cov, count):
        return -0.5 * (np.trace(np.linalg.solve(cov, second)) + count * np.linalg.slogdet(2.0 * np.pi * cov)[1])

    shift = np.outer(totals["start"], of.start)
    value = gaussian(totals["begin"] - shift - shift.T + n * np.outer(of.start, of.start), of.start_cov, n)
    before, after = totals["states"] - totals["end"], totals["states"] - totals["begin"]
    cross = totals["cross"] @ of.moves.T
    value += gaussian(after - cross - cross.T + of.moves @ before @ of.moves.T, of.moves_cov, n_steps - n)
    for i, variance in enumerate(of.noise_variance):
        row = np.append(of.loadings[i], of.offset[i])
        square = totals["squares"][i] - 2.0 * row @ totals["loadings"][i] + row @ totals["seen"][i] @ row
        value -= 0.5 * (square / variance + totals["seen"][i, -1, -1] * np.log(2.0 * np.pi * variance))
    return float(value)
