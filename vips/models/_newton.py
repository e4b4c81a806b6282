"""Coefficients from the scores and the information that a private fit released: post-processing, which costs no budget.

=====================  ================================================================================
symbol                 meaning
=====================  ================================================================================
b_t, g_t               point of step t, and the noisy total of scores there, Σ u r x; noise of variance s_t²
H_t, B_t               noisy totals of information, Σ u E[r s] x xᵀ, and of squares, Σ u² r² x², at b_t
u                      clip weight of a record: a function of its row and b_t alone, not of its label
Λ, h                   precision of the prior, and Λ times its mean
=====================  ================================================================================

Near its root β the total of scores is linear, g_t ≈ H (β - b_t). So each g_t is carried to β by C_t, a tenth of the information
at its own point and the rest of that near β, and the average y = Σ c_t (g_t + C_t b_t) with Σ c_t = 1 obeys

    y | β ~ N(M β, V),    M = Σ c_t C_t,    V = R^½ H R^½ + I Σ c_t² v_t + I ½ s_H² Σ_l (β_l - b̄_l)²,    β ~ N(Λ⁻¹h, Λ⁻¹)

with v_t = s_t² + (κ ‖H (b_t - β)‖)² / d, since a score from far away is carried less well, c_t ∝ 1/v_t, the noise s_H in H, and
the ratios R of released squares to the diagonal of H, drawn to their average by noise. Mean and covariance of β are those of
this linear model, recomputed until its β is their mean, which is taken without κ: as noise vanishes and the prior is flat, the
root of Σ u r x, and the sandwich M⁻¹ V M⁻¹.

Eigenvalues of H are raised to the noise in them in the estimate, which must not run away, and shrunk by it in the covariance,
which must not look certain.

After Avella-Medina, Bradshaw and Loh (2023), who take noisy Newton steps for M-estimators one by one; the weights are those of
Künsch, Stefanski and Carroll (1989).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.linalg import cho_solve
from scipy.special import ndtri
from scipy.stats import chi2

from vips.core.exact.blas import cholesky, eigh
from vips.models._coordinates import LIMIT
from vips.models._definite import positive_definite
from vips.models._variance_ratios import variance_ratios

__all__ = ["ROUNDS", "Prior", "Released", "best_prior", "doubted_deviation", "misfit"]

_KAPPA = 2.0  # κ
_NEAR = 0.1  # share of the information at its own point in what carries a score
_CAUTION = 0.7  # noise in eigenvalues of H by which they are shrunk in the covariance, over √d s_H
_LEAST_PRECISION = 1e-6  # of coefficients in the search for a root, whatever their prior
ROUNDS, _LONGEST = 8, 3.0  # of a match, and its longest step in one coefficient
_TOLERANCE = 1e-4
_UNSURE = 4.0  # deviations, over how far points moved in the second half, where information is hidden
# Deviations of noise above which information is seen, or √d if that is more. Effects are too small where noise lifts it there.
_VISIBLE = 4.5
_MOSTLY = 0.95  # share of a variance in directions that noise hides, from which nothing else tells of a coefficient
_CHANCE = 0.005  # of bends, and of tilts, where there are none
# Deviations of a tilt below which it moves no limit by much; variance of Σ u (h - κ) r x over that of Σ u r x, at most about;
# how far the information in it is from κ times that in scores.
_LEAST_TILT, _SPREAD_OF_TILTS, _CARRIED = 4.0, 0.25, 0.2
_DOUBT = 0.5  # deviation of a variance that was stated as 1
_ROUNDING = 1e-12  # of eigenvalues, over the largest
_FEWEST_NEAR = 4  # scores whose scatter is compared
# A search ended where noise hides the information: information of its last half over the noise; of its first steps over their
# noise, and over information of the last half. Share of a coefficient's variance that lies in the direction of the estimate.
_ENDED, _BEGAN, _FELL, _LIES = 0.9, 3.0, 5.0, 0.25


@dataclass(frozen=True)
class Prior:
    """Λ, shape (d, d), and h, shape (d,)."""

    precision: np.ndarray
    linear: np.ndarray


@dataclass(frozen=True)
class Released:
    """What the steps of a fit released about one output, in coordinates in which rows have norm about 1.

    Parameters
    ----------
    points, scores, squares : ndarray of shape (k, d)
        b_t, g_t and B_t.
    informations : ndarray of shape (k, d, d)
        H_t.
    tilts : ndarray of shape (k, d or 0)
        Σ u h r x, with h falling from 1 in the middle of the rows to 0 far out, if they are released.
    stds : ndarray of shape (k, 3)
        Deviations of the noise in an entry of g_t, on the diagonal of H_t, and of B_t.
    variance : ndarray of shape (k,)
        Variance of g_t by sampling records, over that of all records: (1 - q)/q.
    ratios : (float, float)
        Range of R.
    """

    points: np.ndarray
    scores: np.ndarray
    informations: np.ndarray
    squares: np.ndarray
    tilts: np.ndarray
    stds: np.ndarray
    variance: np.ndarray
    ratios: tuple[float, float]

    def in_deviations(self) -> tuple[Released, float]:
        """The same in units in which residuals have a deviation of 1 on average, and that deviation: 1 where noise hides it."""
        information = np.maximum(np.diagonal(self.informations.mean(axis=0)), self._average_std(1))
        variance = information @ self.squares.mean(axis=0) / np.square(information).sum()
        deviation = doubted_deviation(variance, self._average_std(2) / np.linalg.norm(information))
        stds = self.stds * np.array([1.0 / deviation, 1.0, deviation**-2.0])
        scores, points, squares = self.scores / deviation, self.points / deviation, self.squares / deviation**2
        tilts = self.tilts / deviation
        return replace(self, scores=scores, points=points, squares=squares, tilts=tilts, stds=stds), deviation

    def matched(self, prior: Prior, start: np.ndarray, n_rounds: int = ROUNDS) -> tuple[np.ndarray, np.ndarray]:
        """Mean and precision of the coefficients given all that was released; the search for them begins at ``start``."""
        root, H = start, self.informations.mean(axis=0)
        flat = _LEAST_PRECISION * np.eye(len(start))
        for _ in range(n_rounds):
            linear = self._linear(root, H)
            seen = linear.seen(linear.raised, linear.near)
            step = np.linalg.solve(seen @ linear.raised + flat, seen @ linear.total) - root
            largest = np.abs(step).max()
            root, H = root + step * min(1.0, _LONGEST / max(largest, 1e-300)), linear.H
            if largest <= _TOLERANCE:
                break
        values, vectors = np.maximum(linear.values, 0.0), linear.vectors
        known = _shrunk(values, vectors, _CAUTION * linear.noise)
        information = linear.seen(known, linear.near) @ known  # without κ: a prior must not hold back a search
        mean = np.linalg.solve(positive_definite(information + prior.precision), information @ root + prior.linear)
        # less of it where it is no more than noise, as far as points still move there: steps are short
        hidden = 1.0 / (1.0 + np.square(values / max(linear.noise, 1e-300)))
        moved = vectors.T @ (root - self.points[len(self.points) // 2 :].mean(axis=0))
        spread = vectors * (_UNSURE * hidden * moved)
        cautious = linear.seen(known, linear.V) @ known
        seen = cautious @ spread
        cautious = cautious - seen @ np.linalg.solve(np.eye(len(root)) + spread.T @ seen, seen.T)
        return mean, positive_definite(cautious + prior.precision)

    def _linear(self, estimate: np.ndarray, H: np.ndarray) -> _Linear:
        d, (s, s_H, s_B) = len(estimate), self.stds.T
        far = np.square((self.points - estimate) @ H).mean(axis=1)
        variance = s**2 + _KAPPA**2 * far
        c = (1.0 / variance) / (1.0 / variance).sum()
        noise = np.sqrt(d * np.square(c * s_H).sum())
        average, point = np.tensordot(c, self.informations, 1), c @ self.points
        values, vectors = eigh(0.5 * (average + average.T))
        long = _long(values, noise)
        H = (vectors * long) @ vectors.T
        ratios = variance_ratios(c @ self.squares, np.linalg.norm(c * s_B), np.maximum(np.diagonal(H), 1e-300))
        R = np.sqrt(np.clip(ratios, *self.ratios))
        sampled = 1.0 + (c**2 * self.variance).sum()
        sampled = sampled * R[:, None] * H * R
        near = sampled + np.eye(d) * np.square(c * s).sum()
        off = 0.5 * noise**2 / d * np.square(estimate - point).sum()
        V = near + np.eye(d) * (_KAPPA**2 * (c**2 * far).sum() + off)
        total = c @ (self.scores + _NEAR * self._moved) + (1.0 - _NEAR) * H @ point
        return _Linear(total, _NEAR * values + (1.0 - _NEAR) * long, vectors, V, near, sampled, H, noise)

    @cached_property
    def _moved(self) -> np.ndarray:
        """H_t b_t, shape (k, d)."""
        return np.einsum("tij,tj->ti", self.informations, self.points)

    def scatter(self, estimate: np.ndarray) -> tuple[float, int]:
        """Squared distance of the nearer half of the carried scores from 0, in units of their noise, and degrees of freedom.

        About χ² where scores are carried well: it says nothing about the model of the labels.
        """
        linear = self._linear(estimate, self.informations.mean(axis=0))
        carried = (
            _NEAR * (self.informations @ estimate - self._moved) + (1.0 - _NEAR) * (estimate - self.points) @ linear.H
        )
        left = self.scores - carried
        near = np.argsort(np.square(self.points - estimate).sum(axis=1), kind="stable")
        near = near[: max(_FEWEST_NEAR, len(near) // 2)]
        sampled = self.variance[near, None] * np.maximum(np.diagonal(linear.H), 0.0)
        square = float((np.square(left[near]) / (np.square(self.stds[near, :1]) + sampled)).sum())
        return square, max(len(near) - 1, 0) * len(estimate)

    def average_information(self) -> tuple[np.ndarray, float]:
        """Σ_t H_t / k, shape (d, d), and the deviation of the noise on its diagonal."""
        return self.informations.mean(axis=0), self._average_std(1)

    def _average_std(self, place: int) -> float:
        """Deviation of the noise in an average over the steps."""
        return float(np.sqrt(np.square(self.stds[:, place]).sum()) / len(self.points))

    def visible(self, has_intercept: bool) -> np.ndarray:
        """Whether the information of each coefficient, given the intercept's, stands out from noise; shape (d,)."""
        H, noise = self.average_information()
        of_constant = np.square(H[-1]) / max(H[-1, -1], noise) if has_intercept else 0.0
        return np.diagonal(H) - of_constant > max(_VISIBLE, np.sqrt(len(H))) * noise

    def inseparable(self, precision: np.ndarray) -> np.ndarray:
        """Coefficients whose variance lies in directions of which noise hides the information, shape (d,): effects of columns
        that vary together, or hardly vary. ``precision`` is that of the coefficients."""
        H, noise = self.average_information()
        values, vectors = eigh(H)
        hidden, cov = vectors[:, values < _VISIBLE * noise], np.linalg.inv(precision)
        shares = np.einsum("ik,kl,il->i", hidden, hidden.T @ cov @ hidden, hidden)
        return shares > _MOSTLY * np.diagonal(cov)

    def unbounded(self, at: np.ndarray, precision: np.ndarray, has_intercept: bool) -> np.ndarray:
        """Coefficients at these values that may be larger by any factor, shape (d,): the information about how far they go was
        seen in the first steps, and noise hides it where the search ended, since hardly a label is uncertain there."""
        towards, k = at / max(np.linalg.norm(at), 1e-300), len(self.points)
        if has_intercept:
            towards = np.append(at[:-1], 0.0) / max(np.linalg.norm(at[:-1]), 1e-300)
        values = np.einsum("i,tij,j->t", towards, self.informations, towards)
        began, began_noise = self._pooled(values, slice(max(k // 5, 1)))
        ended, _ = self._pooled(values, slice(k // 2, None))
        noise = self._linear(at, self.informations.mean(axis=0)).noise
        if ended > _ENDED * noise or began < max(_BEGAN * began_noise, _FELL * ended):
            return np.zeros(len(at), bool)
        cov = np.linalg.inv(precision)
        along = cov @ towards
        return np.square(along) > _LIES * (towards @ along) * np.diagonal(cov)

    def _pooled(self, values: np.ndarray, steps: slice) -> tuple[float, float]:
        """Average of entries of information over steps, those with less noise weighing more, and its deviation."""
        weights = np.square(1.0 / np.maximum(self.stds[steps, 1], 1e-300))
        return float(weights @ values[steps] / weights.sum()), float(weights.sum() ** -0.5)

    def bent(self, bends: np.ndarray, std: float, unit: float, has_intercept: bool) -> np.ndarray:
        """Columns for which released bends, Σ u r x xᵀ in these units, stand out from noise and sampling: shape (d,).

        They are about 0 where expected labels are those of the model, whatever their variance. Tests of all squares and
        products of columns, such as Lagrange multipliers of terms left out.
        """
        squares = np.maximum(self.squares[len(self.squares) // 2 :].mean(axis=0), 0.0) / unit**2
        variance = std**2 * (0.5 + 0.5 * np.eye(len(bends))) + LIMIT * np.sqrt(np.outer(squares, squares))
        stands_out = np.abs(bends) > ndtri(1.0 - _CHANCE / bends.size) * np.sqrt(variance)
        if has_intercept:  # these are scores
            stands_out[:, -1] = stands_out[-1] = False
        return stands_out.any(axis=1)

    def tilted(self, at: np.ndarray) -> np.ndarray:
        """Coefficients on which rows in the middle and rows far out do not agree, shape (d,): where clips, which weigh the
        latter less, move the estimate.

        If the expected label is that of the model for each x, any weights that depend on x alone give the same root: so tilts
        are κ times the scores at the same points, but for noise and sampling (Hausman, 1978). κ is the best for all of them.
        """
        d = len(at)
        if not self.tilts.size:
            return np.zeros(d, bool)
        tilt, score = self.tilts.mean(axis=0), self.scores.mean(axis=0)
        kappa = np.clip(tilt @ score / max(score @ score, 1e-300), 0.0, 1.0)
        linear = self._linear(at, self.informations.mean(axis=0))
        far = np.square(linear.H @ (self.points.mean(axis=0) - at)).mean()  # κ is not the same in all directions
        variance = (1.0 + kappa**2) * self._average_std(0) ** 2 + _CARRIED**2 * far
        V = _SPREAD_OF_TILTS * linear.sampled + variance * np.eye(d)
        M = linear.raised
        off, cov = np.linalg.solve(M, tilt - kappa * score), np.linalg.solve(M, np.linalg.solve(M, V).T)
        least = max(_LEAST_TILT, ndtri(1.0 - _CHANCE / (2 * d)))
        return np.abs(off) > least * np.sqrt(np.maximum(np.diagonal(cov), 1e-300))

    def linear_model(self, at: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """y, M and V near these coefficients."""
        linear = self._linear(at, self.informations.mean(axis=0))
        return linear.total, linear.raised, linear.V


@dataclass(frozen=True)
class _Linear:
    """y, eigenvalues and eigenvectors of M, V, V as if all scores were taken near the root, and without noise, H, and the noise
    in eigenvalues of H."""

    total: np.ndarray
    values: np.ndarray
    vectors: np.ndarray
    V: np.ndarray
    near: np.ndarray
    sampled: np.ndarray
    H: np.ndarray
    noise: float

    @cached_property
    def raised(self) -> np.ndarray:
        """M with eigenvalues no less than noise."""
        return (self.vectors * _long(self.values, self.noise)) @ self.vectors.T

    def seen(self, M: np.ndarray, V: np.ndarray) -> np.ndarray:
        """M V⁻¹ of a symmetric M."""
        return cho_solve((cholesky(V), True), M).T


def _long(values: np.ndarray, least: float) -> np.ndarray:
    """Eigenvalues that are no less than this, and above rounding."""
    return np.maximum(values, max(least, _ROUNDING * values.max(initial=0.0), 1e-300))


def _shrunk(values: np.ndarray, vectors: np.ndarray, std: float) -> np.ndarray:
    """Eigenvalues λ ≥ 0 become λ⁵/(λ⁴ + s⁴): directions that noise hides keep hardly any information."""
    return (vectors * np.maximum(values**5 / (values**4 + std**4 + 1e-300), 1e-6)) @ vectors.T


def doubted_deviation(variance: float, noise: float) -> float:
    """Deviation whose noisy square this is, stated as 1 where noise hides it; no less than noise allows."""
    variance = 1.0 + (variance - 1.0) / (1.0 + np.square(noise / _DOUBT))
    return float(np.sqrt(max(variance, min(noise, 1.0), 1e-12)))


def best_prior(released: Released, priors: Sequence[Prior], at: np.ndarray, least_gain: float) -> int:
    """Place of the prior under which what was released is most probable; the first one, unless it is e^``least_gain`` times as
    probable under another one.

    y ~ N(M Λ⁻¹h, V + M Λ⁻¹ M): empirical Bayes.
    """
    total, M, V = released.linear_model(at)
    varies = cholesky(V), True
    seen = cho_solve(varies, M).T
    evidence = []
    for prior in priors:
        factor = cholesky(positive_definite(prior.precision))
        law = cholesky(positive_definite(prior.precision + seen @ M))
        off = total - M @ cho_solve((factor, True), prior.linear)
        known = seen @ off
        square = off @ cho_solve(varies, off) - known @ cho_solve((law, True), known)
        evidence.append(np.log(np.diagonal(factor)).sum() - np.log(np.diagonal(law)).sum() - 0.5 * square)
    evidence[0] += least_gain
    return int(np.argmax(evidence))


def misfit(released: Sequence[Released], estimates: np.ndarray) -> float:
    """Probability that carried scores of all outputs scatter as much, or more, by noise alone."""
    squares, degrees = np.sum([of.scatter(at) for of, at in zip(released, estimates, strict=True)], axis=0)
    return float(chi2.sf(squares, degrees)) if degrees else np.nan
