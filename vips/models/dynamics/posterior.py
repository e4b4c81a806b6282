"""Parameters of a linear dynamical system, their coordinates, and the posterior of a fit.

===================  ========================  ====================================================
symbol               name                      meaning
===================  ========================  ====================================================
A, Q (K, K)          ``moves, moves_cov``      next state: x' ~ N(A x, Q)
C (p, K), d (p,)     ``loadings, offset``      what is seen: y ~ N(C x + d, diag R)
R (p,)               ``noise_variance``
m0 (K,), P0 (K, K)   ``start, start_cov``      first state: N(m0, P0)
===================  ========================  ====================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property

import numpy as np
from scipy.linalg import solve_discrete_lyapunov

from vips.core.exact.blas import cholesky, eigh
from vips.expfam import Draws
from vips.models._definite import positive_definite
from vips.models.dynamics import kernels

__all__ = ["Dynamics", "DynamicsPosterior", "KnownSteps", "Uncertainty", "stable"]

_OF = "uncertainty_of_"  # before the names of arrays of a saved uncertainty
_N_SYSTEMS = 40  # draws of forecasts
_LARGEST = 1.0 - 1e-6  # modulus of an eigenvalue of A for which there is a stationary covariance


@dataclass(frozen=True, repr=False)
class Dynamics:
    """A linear dynamical system.

    Parameters
    ----------
    moves, moves_cov : ndarray of shape (K, K)
    loadings : ndarray of shape (p, K)
    offset, noise_variance : ndarray of shape (p,)
    start : ndarray of shape (K,)
    start_cov : ndarray of shape (K, K)
    """

    moves: np.ndarray
    moves_cov: np.ndarray
    loadings: np.ndarray
    offset: np.ndarray
    noise_variance: np.ndarray
    start: np.ndarray
    start_cov: np.ndarray

    def __post_init__(self) -> None:
        for name, value in vars(self).items():  # one layout: kernels are compiled for it alone
            object.__setattr__(self, name, np.ascontiguousarray(value))

    @classmethod
    def idle(cls, n_components: int, offset: np.ndarray, variance: np.ndarray) -> Dynamics:
        """States that nothing shows, and columns that do not depend on time."""
        K, eye = n_components, np.eye(n_components)
        return cls(0.0 * eye, eye, np.zeros((len(offset), K)), offset, variance, np.zeros(K), eye)

    def stationary(self) -> np.ndarray:
        """Covariance of the state after many steps; of a system that has none, of one with shorter steps."""
        A = stable(self.moves, _LARGEST)
        return positive_definite(solve_discrete_lyapunov(A, self.moves_cov))

    def explained(self) -> np.ndarray:
        """For each column in the long run: the deviation of what the state does not explain, the share of the variance that it
        does, and the correlation of the explained part with itself one step later; shape (3, p)."""
        cov = self.stationary()
        signal, later = (np.einsum("pi,ij,pj->p", self.loadings, of, self.loadings) for of in (cov, self.moves @ cov))
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.array([np.sqrt(self.noise_variance), signal / (signal + self.noise_variance), later / signal])

    def in_coordinates(self, B: np.ndarray, inverse: np.ndarray) -> Dynamics:
        """The same system with the state B x."""
        return Dynamics(
            B @ self.moves @ inverse, _symmetric(B @ self.moves_cov @ B.T), self.loadings @ inverse, self.offset,
            self.noise_variance, B @ self.start, _symmetric(B @ self.start_cov @ B.T),
        )  # fmt: skip

    def canonical(self) -> Dynamics:
        """The same system in canonical coordinates."""
        return self.in_coordinates(*self.canonical_coordinates())

    def canonical_coordinates(self) -> tuple[np.ndarray, np.ndarray]:
        """B and its inverse, each of shape (K, K): B x has the stationary covariance I, and its entries are ordered by how much
        they show: Cᵀ R⁻¹ C is diagonal and descends, and the largest entry of each column of C is positive."""
        factor = cholesky(self.stationary())
        shown = (self.loadings @ factor) / np.sqrt(self.noise_variance)[:, None]
        vectors = eigh(shown.T @ shown)[1][:, ::-1]
        turned = self.loadings @ factor @ vectors
        signs = np.where(turned[np.abs(turned).argmax(axis=0), np.arange(turned.shape[1])] < 0.0, -1.0, 1.0)
        inverse = factor @ (vectors * signs)
        return np.linalg.inv(inverse), inverse

    def widened(self, n_components: int) -> Dynamics:
        """With entries of the state that nothing shows, up to ``n_components``."""
        p, K = self.loadings.shape
        n_added, eye = n_components - K, np.eye(n_components)
        if n_added == 0:
            return self
        wide = [0.0 * eye, eye.copy(), eye.copy()]
        for target, matrix in zip(wide, (self.moves, self.moves_cov, self.start_cov), strict=True):
            target[:K, :K] = matrix
        loadings = np.hstack([self.loadings, np.zeros((p, n_added))])
        start = np.append(self.start, np.zeros(n_added))
        return Dynamics(wide[0], wide[1], loadings, self.offset, self.noise_variance, start, wide[2])


@dataclass(frozen=True, repr=False)
class KnownSteps:
    """What does not depend on the data where nothing is missing, for the first ``len(gains)`` steps."""

    gains: np.ndarray
    variances: np.ndarray
    backs: np.ndarray
    ahead_cov: np.ndarray
    cov: np.ndarray


@dataclass(frozen=True, repr=False)
class Uncertainty:
    """What a posterior of the parameters has beside its centre, a :class:`Dynamics` with Q = I, R = rate / shape, P0 = Ψ / ν.

    Parameters
    ----------
    moves : ndarray of shape (K, K)
        Covariance of each row of A.
    columns : ndarray of shape (p, K + 1, K + 1)
        Covariance of (c_i, d_i), in units of R_i.
    shapes : ndarray of shape (p,)
        Of the Gamma of 1 / R_i.
    start_count, start_dof : float
        κ and ν.
    """

    moves: np.ndarray
    columns: np.ndarray
    shapes: np.ndarray
    start_count: float
    start_dof: float

    def __post_init__(self) -> None:
        p, K = len(self.shapes), len(self.moves)
        if self.moves.shape != (K, K) or self.columns.shape != (p, K + 1, K + 1) or self.shapes.shape != (p,):
            raise ValueError("the arrays of the uncertainty do not fit together")
        numbers = [self.start_count, self.start_dof - (K - 1), *self.shapes]
        if not all(np.isfinite(value).all() for value in vars(self).values()) or not min(numbers) > 0.0:
            raise ValueError("the uncertainty is not finite, or a count is not positive")
        if min(np.linalg.eigvalsh(covariance)[0] for covariance in (self.moves, *self.columns)) <= 0.0:
            raise ValueError("a covariance of the uncertainty is not positive definite")


@dataclass(frozen=True, repr=False)
class DynamicsPosterior:
    """Parameters at which a fit is.

    Parameters
    ----------
    dynamics : Dynamics
    n_sequences, n_steps : float
        Numbers of sequences and of steps, noisy in a private fit.
    uncertainty : Uncertainty or None
        Of the parameters, in coordinates in which Q = I; None of EM and of private fits.
    draws : dict of str to Draws
        Of "moves", "loadings", "offset" and "noise_variance" in canonical coordinates, and of "explained"
        (:meth:`Dynamics.explained`), given that totals are noisy: what intervals are read from; empty where there are none. Not
        saved.
    """

    dynamics: Dynamics
    n_sequences: float = 0.0
    n_steps: float = 0.0
    uncertainty: Uncertainty | None = None
    draws: Mapping[str, Draws] = field(default_factory=dict)
    _known: dict = field(default_factory=dict, init=False, compare=False, repr=False)

    def __repr__(self) -> str:
        p, K = self.dynamics.loadings.shape
        return f"<DynamicsPosterior of {K} states, {p} columns>"

    @cached_property
    def canonical(self) -> Dynamics:
        """The dynamics in their canonical coordinates."""
        return self.dynamics.canonical()

    def systems(self) -> list[Dynamics]:
        """Draws of the dynamics; the dynamics themselves where there are none."""
        if not self.draws:
            return [self.canonical]
        names, n = ("moves", "loadings", "offset", "noise_variance"), len(self.draws["moves"].draws)
        draws = zip(*(self.draws[name].draws[:: max(n // _N_SYSTEMS, 1)] for name in names), strict=True)
        systems = (replace(self.canonical, **dict(zip(names, draw, strict=True))) for draw in draws)
        return [replace(of, moves_cov=np.eye(len(of.moves)) - of.moves @ of.moves.T) for of in systems]

    def known(self, n_steps: int) -> KnownSteps:
        """Gains and covariances of the filter for at least ``n_steps`` steps without gaps."""
        steps = self._known.get("steps")
        if steps is None or len(steps.gains) < n_steps:
            of, (p, K) = self.dynamics, self.dynamics.loadings.shape
            steps = KnownSteps(
                np.empty((n_steps, p, K)), np.empty((n_steps, p)), np.zeros((n_steps, K, K)), np.empty((n_steps, K, K)),
                np.empty((n_steps, K, K)),
            )  # fmt: skip
            args = (of.moves, of.moves_cov, of.loadings, of.noise_variance, of.start_cov)
            kernels.known_gains(n_steps, *args, steps.gains, steps.variances, steps.ahead_cov, steps.cov)
            if n_steps:
                ends, sums = np.empty((2, K, K)), np.empty((2, K, K))
                kernels.known_smoother(of.moves, steps.ahead_cov, steps.cov, steps.backs, ends, *sums)
            self._known["steps"] = steps  # threads may compute it twice, with the same numbers
        return steps

    def known_sums(self, length: int) -> np.ndarray:
        """Covariances of a sequence of ``length`` steps without gaps, shape (4, K, K): of the first state, of the last one, and
        the sums over steps of Cov(x_t) and of Cov(x_t, x_{t-1})."""
        sums = self._known.get(("sums", length))
        if sums is None:
            steps, K = self.known(length), self.dynamics.loadings.shape[1]
            sums = np.zeros((4, K, K))
            if length:
                backs = np.empty((length, K, K))
                covariances = steps.ahead_cov[:length], steps.cov[:length]
                kernels.known_smoother(self.dynamics.moves, *covariances, backs, sums[:2], sums[2], sums[3])
            self._known[("sums", length)] = sums
        return sums

    def to_arrays(self) -> dict[str, np.ndarray]:
        """For saving."""
        counts = {name: np.array(getattr(self, name)) for name in ("n_sequences", "n_steps")}
        if self.uncertainty is not None:
            counts |= {f"{_OF}{name}": np.asarray(value) for name, value in vars(self.uncertainty).items()}
        return dict(vars(self.dynamics)) | counts

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> DynamicsPosterior:
        """Inverse of ``to_arrays``.

        Raises
        ------
        ValueError
            If the arrays do not fit together, are not finite, or a variance or covariance is not positive.
        """
        of = Dynamics(*(np.asarray(arrays[entry.name], dtype=np.float64) for entry in fields(Dynamics)))
        p, K = of.loadings.shape
        shapes = {"moves": (K, K), "moves_cov": (K, K), "offset": (p,), "noise_variance": (p,), "start": (K,)}
        if any(getattr(of, name).shape != shape for name, shape in (shapes | {"start_cov": (K, K)}).items()):
            raise ValueError("the arrays of the dynamics do not fit together")
        if not all(np.isfinite(value).all() for value in vars(of).values()) or not (of.noise_variance > 0.0).all():
            raise ValueError("the dynamics are not finite, or a variance is not positive")
        if any(np.linalg.eigvalsh(cov)[0] <= 0.0 for cov in (of.moves_cov, of.start_cov)):
            raise ValueError("a covariance of the dynamics is not positive definite")
        spread = None
        if any(name.startswith(_OF) for name in arrays):
            given = (np.asarray(arrays[f"{_OF}{entry.name}"], np.float64) for entry in fields(Uncertainty))
            *matrices, count, dof = given
            spread = Uncertainty(*matrices, float(count), float(dof))
            if spread.columns.shape != (p, K + 1, K + 1):
                raise ValueError("the uncertainty does not fit the dynamics")
        return cls(of, float(arrays["n_sequences"]), float(arrays["n_steps"]), spread)


def stable(moves: np.ndarray, largest: float) -> np.ndarray:
    """A with its eigenvalues of a modulus of at most ``largest``: in proportion to A."""
    radius = np.abs(np.linalg.eigvals(moves)).max(initial=0.0)
    return moves if radius <= largest else moves * (largest / radius)


def _symmetric(matrix: np.ndarray) -> np.ndarray:
    return 0.5 * (matrix + matrix.T)
