"""Linear dynamical system: a Gaussian state-space model of sequences of vectors."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import polygamma
from sklearn.utils.validation import check_is_fitted

from vips._support.arguments import arguments, choice, positive
from vips._support.extras import imported
from vips._support.printable import PLAIN_TEXT, printable
from vips._support.validation import check_integer, check_level
from vips.core.mechanism.random_state import RandomStateLike, as_generator
from vips.data._sequences import Sequences
from vips.data._step_index import forecast_frame, step_frame
from vips.expfam import DiagonalGaussian, Draws
from vips.models import _typical as typical
from vips.models._sequences import state_names
from vips.models.components.matching.match import Match
from vips.models.components.matching.steps import kept_steps
from vips.models.dynamics.contract import DynamicsModel
from vips.models.dynamics.matching import match_of, matched_system
from vips.models.dynamics.posterior import Dynamics, DynamicsPosterior
from vips.models.dynamics.smoothing import filtered, forecasts, samples, smoothed, smoothed_whole
from vips.models.dynamics.variational import spread_of
from vips.parts import Part, in_table, indexed, warn_of_no_intervals

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

__all__ = ["LinearDynamicalSystem"]

_TINY = 1e-300
_FADES = 0.8  # of generated states, in a step
_MOST_KEPT = 20_000  # totals


@arguments
class LinearDynamicalSystem(DynamicsModel):
    """Sequences of vectors that a hidden state drives, which moves linearly: x' ~ N(A x, Q), y ~ N(C x + d, diag R).

    One record is one whole sequence. Without privacy the fit is EM, or variational Bayes. A private fit releases moments of
    pairs of steps, once, and computes the system from them.

    Parameters
    ----------
    n_components : int
        Entries of the state.
    inference : {"em", "vb"}
        Of fits without privacy. "vb" gives a posterior of the parameters; attributes are at its centre.
    transition_prior, loadings_prior : float
        Of "vb": precisions of entries of A, where Q = I, and of entries of C, in units of R.
    n_lags : int or None
        Public. A fit begins with covariances of steps up to so many steps apart, and a private fit has no others. None: 5, or
        more if columns are fewer than states.
    n_features : int or None
        Columns of every sequence: public. None takes those of X; a private fit to a list of arrays, whose widths may differ,
        needs it.
    max_norm : float or None
        Public bound on the L2 norm of a step; longer steps are scaled down to it. Centre and scale columns by public numbers
        first. Required for a private fit.
    max_length : int
        Public. A fit reads the first ``max_length`` steps of a sequence.
    typical_length : int
        Public. The clip norm of a plan without one is that of a sequence of so many steps; longer ones weigh less.
    privacy : PrivacyBudget, PrivacyPlan or None
        None is a non-private fit, until it has settled. A private plan should have one step: others would release
        the same moments again.
    schedule : RobbinsMonro, callable or None
        Step sizes without privacy, as a function of 2, 3, …. None: see :meth:`step_size`.
    random_state : int, Generator, RandomState or None
        Seeds the sampling of non-private fits. Noise is never seeded.

    Attributes
    ----------
    transition_matrix_, transition_covariance_ : ndarray of shape (K, K)
        A and Q. The state is in coordinates of stationary covariance I, ordered by how much its entries show in the columns.
    observation_matrix_ : ndarray of shape (n_features, K)
        C.
    observation_offset_, observation_variance_ : ndarray of shape (n_features,)
        d, and the diagonal of R.
    initial_state_mean_, initial_state_covariance_ : ndarray of shape (K,), (K, K)
        Of the first state.
    posterior_ : DynamicsPosterior
    privacy_ : PrivacyReport

    Notes
    -----
    *Privacy.*
    Unit: one sequence, of any length; with ``groups``, all sequences of a person. Relation: add or remove one. Released: the
    noisy moments of every step, hence the system and the sequences that ``sample`` draws. Public by declaration: all
    constructor arguments. Not covered: choosing any of them by looking at these records; :meth:`predict`, :meth:`forecast`,
    :meth:`smooth` and :meth:`score`, which read the sequences that they are given, and add no noise.

    A step in which all entries are NaN is missing; so are single entries. Both are handled exactly without privacy. Private
    fits take each covariance from the pairs of entries that are there, which is unbiased if gaps do not depend on values.

    Examples
    --------
    >>> import numpy as np
    >>> from vips import LinearDynamicalSystem, PrivacyPlan
    >>> rng = np.random.default_rng(0)
    >>> level = rng.normal(size=(5000, 30)).cumsum(axis=1) * 0.1
    >>> series = list(level[:, :, None] + 0.3 * rng.normal(size=(5000, 30, 3)))
    >>> plan = PrivacyPlan.from_epsilon(epsilon=1.0, delta=1e-6, sampling_rate=1.0, n_steps=1)
    >>> model = LinearDynamicalSystem(1, n_features=3, privacy=plan, max_norm=2.0).fit(series)
    >>> bool(0.9 < model.transition_matrix_[0, 0] < 1.0)
    True
    >>> model.forecast(series[:2], n_steps=5)[0].shape
    (2, 5, 3)
    """

    inference: str = choice("em", "vb", default="em")
    transition_prior: float = positive(default=1.0)
    loadings_prior: float = positive(default=0.01)

    # -- the system ---------------------------------------------------------------------------------------------

    @property
    def transition_matrix_(self) -> np.ndarray:
        """A, shape (K, K)."""
        return self._system().moves

    @property
    def transition_covariance_(self) -> np.ndarray:
        """Q, shape (K, K)."""
        return self._system().moves_cov

    @property
    def initial_state_mean_(self) -> np.ndarray:
        """Mean of the first state, shape (K,)."""
        return self._system().start

    @property
    def initial_state_covariance_(self) -> np.ndarray:
        """Covariance of the first state, shape (K, K)."""
        return self._system().start_cov

    # -- states and forecasts -----------------------------------------------------------------------------------

    def smooth(self, X, lengths=None) -> tuple[np.ndarray | pd.DataFrame, np.ndarray]:
        """States given whole sequences: means, shape (n_steps, K), and covariances, shape (n_steps, K, K), an array."""
        states, _ = smoothed_whole(self._read(X, lengths), self._system())
        return step_frame(X, states.mean, state_names(self.n_components)), states.cov

    def filter(self, X, lengths=None) -> tuple[np.ndarray | pd.DataFrame, np.ndarray]:
        """States given the steps so far: means, shape (n_steps, K), and covariances, shape (n_steps, K, K), an array."""
        states = filtered(self._read(X, lengths), self._system())
        return step_frame(X, states.mean, state_names(self.n_components)), states.cov

    def transform(self, X, lengths=None) -> np.ndarray | pd.DataFrame:
        """Means of the states given whole sequences, shape (n_steps, K)."""
        states = smoothed(self._read(X, lengths), DynamicsPosterior(self._system()))
        return step_frame(X, states.mean, state_names(self.n_components))

    def predict(self, X, lengths=None) -> np.ndarray | pd.DataFrame:
        """Each step as the steps before predict it, shape (n_steps, n_features)."""
        of = self._system()
        return step_frame(X, filtered(self._read(X, lengths), of).ahead @ of.loadings.T + of.offset)

    def forecast(
        self, X, lengths=None, *, n_steps: int = 1, level: float = 0.95
    ) -> tuple[np.ndarray | pd.DataFrame, ...]:
        """The steps after the end of each sequence.

        Parameters
        ----------
        X, lengths
            Sequences, as for ``fit``. After an empty one follow first steps.
        n_steps : int
        level : float
            Of the intervals, each for one number. Those of a private fit with a match include how uncertain the parameters are;
            others are for known parameters.

        Returns
        -------
        mean, lower, upper : ndarray of shape (n_sequences, n_steps, n_features)
            Of sequences of a data frame three data frames, with a row for each id and step. Times go on by ``every`` if they
            were given a distance, else steps ahead count from 1.
        """
        check_integer("n_steps", n_steps)
        check_level(level)
        means_and_ends = forecasts(self._read(X, lengths), self.posterior_.systems(), n_steps, level)
        return tuple(forecast_frame(X, values) for values in means_and_ends)

    # -- synthetic sequences --------------------------------------------------------------------------------------

    def sample(
        self, n_samples: int = 1, random_state: RandomStateLike = None, *, lengths: object = None
    ) -> tuple[Sequences, np.ndarray]:
        """Synthetic sequences; from a private fit, as private as the fit.

        Parameters
        ----------
        n_samples : int
            Number of sequences.
        random_state : int, Generator, RandomState or None
        lengths : sequence of n_samples int, optional
            None draws lengths from a geometric distribution with the released mean, at most ``max_length``.

        Returns
        -------
        sequences : Sequences
        states : ndarray of shape (n_steps, K)
        """
        check_integer("n_samples", n_samples, 0)
        rng, of = as_generator(random_state), self._system()
        if lengths is None:
            ended = np.clip(self.posterior_.n_sequences / max(self.posterior_.n_steps, _TINY), _TINY, 1.0)
            lengths = np.minimum(rng.geometric(max(ended, 1.0 / self.max_length), n_samples), self.max_length)
        return samples(of, np.asarray(lengths, np.int64), rng)

    # -- comparisons --------------------------------------------------------------------------------------------

    def summary(self, level: float = 0.95) -> pd.DataFrame:
        """A row for each column: what the state explains of it. Needs pandas.

        Parameters
        ----------
        level : float
            Of the intervals.

        Returns
        -------
        DataFrame
            ``mean``; ``noise``, the standard deviation of what the state does not explain; ``explained``, the share of the
            variance that it does; ``next``, the correlation of the explained part with itself one step later. All in the long
            run of the system, each with its ``lower`` and ``upper`` limit where intervals know the noise.

        Warns
        -----
        PrivacyWarning
            If there are no limits in a private fit: it says why.
        """
        pd, of = imported("pandas", "summary()"), self._system()
        check_level(level)
        warn_of_no_intervals(self)
        draws, table = self.posterior_.draws, {}
        values = np.vstack([of.offset, of.explained()])
        if draws:
            limits = zip(draws["offset"].interval(level), draws["explained"].interval(level), strict=True)
            limits = [np.vstack(of_side) for of_side in limits]
        for row, name in enumerate(("mean", "noise", "explained", "next")):
            table[name] = values[row]
            if draws:
                table |= {f"{name}, {side}": of[row] for side, of in zip(("lower", "upper"), limits, strict=True)}
        return pd.DataFrame(table, index=pd.Index(self.column_names()))

    def modes(self) -> pd.DataFrame:
        """A row for each mode of the moves, the slowest first: how fast it fades, and how it swings. Needs pandas.

        Returns
        -------
        DataFrame
            ``half-life`` in steps; ``period`` in steps, infinite for a mode that does not swing. Two rows for each swing.
        """
        pd = imported("pandas", "modes()")
        values = np.linalg.eigvals(self._system().moves)
        values = values[np.argsort(-np.abs(values), kind="stable")]
        with np.errstate(divide="ignore"):
            halves = np.abs(np.log(0.5) / np.log(np.minimum(np.abs(values), 1.0)))
            return pd.DataFrame({"half-life": halves, "period": 2.0 * np.pi / np.abs(np.angle(values))})

    def plot_forecast(
        self, X, *, n_steps: int = 10, level: float = 0.95, columns: object = None, ax: Axes | None = None
    ) -> Axes:
        """A picture of one sequence and of the steps after it. It shows this record, and is not private.

        Parameters
        ----------
        X : array of shape (n_steps, n_features)
            One sequence; NaN is a gap.
        n_steps : int
        level : float
            Of the intervals, as in :meth:`forecast`.
        columns : list of int, optional
            Those that are drawn; the first four by default.
        ax : matplotlib.axes.Axes, optional

        Returns
        -------
        matplotlib.axes.Axes
        """
        check_is_fitted(self, "last_posterior_")
        series = Sequences.from_list([X], self.n_features_in_)
        means, lower, upper = (values[0] for values in self.forecast(series, n_steps=n_steps, level=level))
        plt = imported("matplotlib.pyplot", "plot_forecast()")
        if ax is None:
            _, ax = plt.subplots(figsize=(7.0, 3.2), layout="constrained")
        n, names = len(series.values), self.column_names()
        later = np.arange(n, n + n_steps)
        for place, j in enumerate(range(min(4, self.n_features_in_)) if columns is None else columns):
            colour = f"C{place % 10}"
            ax.plot(np.arange(n), series.values[:, j], ".", color=colour, markersize=4)
            ax.plot(later, means[:, j], color=colour, label=printable(str(names[j])))
            ax.fill_between(later, lower[:, j], upper[:, j], color=colour, alpha=0.2, linewidth=0)
        ax.axvline(n - 0.5, color="gray", linewidth=0.8, linestyle=":")
        ax.set_xlabel("step")
        legend = ax.legend(fontsize="x-small", loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False)
        for text in legend.get_texts():
            text.set(**PLAIN_TEXT)
        return ax

    def posterior_parts(self, posterior) -> list[Part]:
        """Rows of C, d, log R and A: Gaussian, with the posterior's variances, or those for known states."""
        if not isinstance(posterior, DynamicsPosterior):
            return super().posterior_parts(posterior)
        of, (p, K) = posterior.dynamics.canonical(), posterior.dynamics.loadings.shape
        n, states = max(posterior.n_steps, 1.0), state_names(self.n_components)
        columns, rows = self.column_names(), [*(f"state {k}" for k in range(K)), "offset", "log noise variance"]
        seen = np.vstack([of.loadings.T, of.offset, np.log(of.noise_variance)])
        variances = np.vstack([np.tile(of.noise_variance, (K + 1, 1)), np.full((1, p), 2.0)]) / n
        moved = np.repeat(np.maximum(np.diag(of.moves_cov), _TINY)[:, None], K, axis=1) / n
        if posterior.uncertainty is not None:
            moved, of_columns = spread_of(posterior)
            variances = np.vstack([of_columns.T, polygamma(1, posterior.uncertainty.shapes)])
        emissions, moves = DiagonalGaussian(seen, 1.0 / variances), DiagonalGaussian(of.moves, 1.0 / moved)
        if draws := posterior.draws:
            loadings = np.swapaxes(draws["loadings"].draws, 1, 2)
            others = draws["offset"].draws, np.log(draws["noise_variance"].draws)
            emissions = Draws(np.concatenate([loadings, *(part[:, None] for part in others)], axis=1))
            moves = draws["moves"]
        return [
            Part("emissions", emissions, partial(in_table, rows, columns), columns),
            Part("moves", moves, partial(indexed, "moves"), states),
        ]

    def predictions(self, X) -> np.ndarray:
        """Log likelihood of each sequence."""
        return self.score_samples(X)

    def typical_records(self, n_records: int, n_features: int | None, rng: np.random.Generator) -> tuple[Any, Any]:
        """Sequences of a state that turns and fades, of which each column has half of its variance."""
        K, d = self.n_components, typical.n_columns(self, self.n_features or n_features)
        turns = np.linalg.qr(rng.standard_normal((K, K)))[0]
        loadings = rng.standard_normal((d, K)) / np.sqrt(2.0 * K)
        scale = (1.0 if self.max_norm is None else self.max_norm) / np.sqrt(4.0 * d)
        of = Dynamics(
            _FADES * turns, (1.0 - _FADES**2) * np.eye(K), scale * loadings, np.zeros(d), np.full(d, 0.5 * scale**2),
            np.zeros(K), np.eye(K),
        )  # fmt: skip
        lengths = np.clip(rng.poisson(self.typical_length, n_records), 1, self.max_length)
        return samples(of, lengths, rng)[0], None

    # -- the match ----------------------------------------------------------------------------------------------

    def kept_steps(self, n_steps: int) -> Collection[int]:
        return kept_steps(self, n_steps, most_totals=_MOST_KEPT)

    def to_match(self) -> Match:
        return match_of(self)

    def to_noise_aware_posterior(self) -> DynamicsPosterior:
        return matched_system(self.match(), self.last_posterior_)

    # -- helpers ------------------------------------------------------------------------------------------------

    def _log_likelihood(self, records: Sequences) -> np.ndarray:
        return filtered(self._read(records), self._system()).log_likelihood

    def _system(self) -> Dynamics:
        """The fitted system in its canonical coordinates."""
        return self.posterior_.canonical
