"""Kernels of mixed effects: scores and information of one person after the other.

===================  ==============================================================================================
symbol               meaning
===================  ==============================================================================================
x_j (d,), u_j (q,)   design of a person's row j, and the part of it whose effects are the person's own
L (q, q)             lower factor of the effects' covariance Ω = L Lᵀ; v ~ N(0, I), the person's effects are L v
ψ_j                  x_jᵀ b + u_jᵀ L v + o_j, of a likelihood exp(κ_j ψ_j) / (2 cosh(ψ_j/2))^b_j
r_j, h_j             κ_j - b_j tanh(ψ_j/2) / 2 and b_j / (4 cosh²(ψ_j/2)): first and second derivative, the latter negative
η                    logarithms of the diagonal of L, and the entries below it, row by row
===================  ==============================================================================================

p(v | y) is integrated by Gauss-Hermite quadrature about its mode. So a score is the exact derivative of a person's log marginal
likelihood, to the error of the quadrature, and the information its negative Hessian (Louis 1982). All results are functions of
a person's rows and id alone, to the last bit.
"""

from __future__ import annotations

import numpy as np

from vips.core.exact.compiled import compiled

__all__ = ["add_moments", "person_moments"]

_jit = compiled(nogil=True, error_model="numpy")
# Newton steps to a mode, and halvings of one.
_MOST_STEPS, _MOST_HALVED, _SETTLED = 60, 30, 1e-3
_MOST_COUNTED = 10_000.0


@_jit
def person_moments(
    rows, effects, bits, shape, linear, offset, starts, coefficients, factor, eta, nodes, log_weights, dispersion, largest,
    n_simulated, salt, size, limits, scores, information, squares,
):  # fmt: skip
    """Clipped scores of all persons, centred, their information and the squares of the scores.

    A score s becomes w c(s) + E[w (s* - c(s*))], where w is a weight that ignores labels, c clips, and s* is the score of
    labels that the model draws for the same rows: its expectation is that of w s, which is 0 under the model. So the clip,
    which looks at labels, moves nothing. The information that it takes, E[w (s* - c(s*)) s*ᵀ], is taken off, too. The draws
    are a function of the rows, the id and ``salt``.

    Parameters
    ----------
    rows, effects, bits : ndarray of shape (n_rows, d), (n_rows, q), and uint64 (n_rows, d + 1)
        x, u, and the bits of x and of a number that the person's id gives: persons of equal rows have draws of their own, whose
        errors do not add up.
    shape, linear, offset, starts : ndarray of shape (n_rows,), and (n_persons + 1,)
        b, κ, o, and where each person's rows begin.
    coefficients, factor, nodes, log_weights : ndarray of shape (d,), (q, q), (n_nodes, q), (n_nodes,)
        b, L, and the quadrature for N(0, I).
    eta : (ndarray, ndarray, ndarray) of shape (p - d,)
        Places of the entries of η in L, rows and columns, and the derivatives of L there.
    dispersion, largest : float
        r and the largest count of negative binomial labels; 0 and 1 for binary ones.
    n_simulated, salt : int, uint64
        Drawn sets of labels of a person, and of what they are a function besides.
    size : (float, float)
        A person's weight is the smaller of 1 and C₁ / √(f₁ E‖s‖² + f₂ max_j ‖a_j‖²), with a_j one row's part: f₁ and f₂.
    limits : (float, float, float)
        C₁, the largest norm of a clipped score, and those of information and squares; inf without a clip.
    scores, information, squares : ndarray of shape (n_persons, p), (n_persons, p, p), (n_persons, p)
        To fill in.
    """
    d, q, p = rows.shape[1], effects.shape[1], scores.shape[1]
    score, hessian, drawn, none = np.empty(p), np.empty((p, p)), np.empty(p), np.empty((0, 0))
    for i in range(len(scores)):
        a, b = starts[i], starts[i + 1]
        base, v_design, labels = np.empty(b - a), np.empty((b - a, q)), np.empty((2, b - a))
        for j in range(b - a):
            total = offset[a + j]
            for k in range(d):
                total += rows[a + j, k] * coefficients[k]
            base[j] = total
            for c in range(q):
                total = 0.0
                for k in range(c, q):
                    total += effects[a + j, k] * factor[k, c]
                v_design[j, c] = total
        x, u = rows[a:b], effects[a:b]
        _moments(x, u, v_design, base, shape[a:b], linear[a:b], eta, nodes, log_weights, score, hessian)
        weight = 1.0
        if limits[0] < np.inf:
            weight = min(1.0, limits[0] / np.sqrt(_typical_square(x, v_design, base, dispersion, size)))
        cut = min(1.0, limits[0] / _norm(score, weight))
        for k in range(p):
            scores[i, k] = weight * cut * score[k]
        if limits[0] < np.inf and a < b:
            state = np.uint64(salt)
            for j in range(a, b):
                for k in range(bits.shape[1]):
                    state = _mixed(state ^ bits[j, k])
            for _ in range(n_simulated):
                state = _draw_labels(v_design, base, dispersion, largest, state, labels)
                _moments(x, u, v_design, base, labels[0], labels[1], eta, nodes, log_weights, drawn, none)
                cut = 1.0 - min(1.0, limits[0] / _norm(drawn, weight))
                for k in range(p):
                    scores[i, k] += weight * cut / n_simulated * drawn[k]
                    for c in range(p):
                        hessian[k, c] -= cut / n_simulated * drawn[k] * drawn[c]
        clip = min(1.0, limits[1] / _norm(hessian.ravel(), weight))
        for k in range(p):
            for c in range(p):
                information[i, k, c] = weight * clip * hessian[k, c]
        for k in range(p):
            squares[i, k] = scores[i, k] * scores[i, k]
        clip = min(1.0, limits[2] / _norm(squares[i], 1.0))
        for k in range(p):
            squares[i, k] *= clip


@_jit
def _norm(values, weight):
    total = 0.0
    for value in values:
        total += value * value
    return max(weight * np.sqrt(total), 1e-300)


@_jit
def _moments(x, u, v_design, base, shape, linear, eta, nodes, log_weights, score, hessian):
    """Score of one person, and the negative Hessian where ``hessian`` has a place for it."""
    n, q, n_nodes = len(x), u.shape[1], len(log_weights)
    mode, spread, places, weights = np.zeros(q), np.zeros((q, q)), np.empty((n_nodes, q)), np.empty(n_nodes)
    first, second, by_node = np.empty((n_nodes, n)), np.empty((n_nodes, n)), np.empty((n_nodes, len(score)))
    _find_mode(v_design, base, shape, linear, mode, spread)
    for m in range(n_nodes):
        density = log_weights[m]
        for k in range(q):
            place = mode[k]
            for c in range(k, q):  # the spread is the inverse of the transposed Cholesky factor
                place += spread[k, c] * nodes[m, c]
            places[m, k] = place
            density += 0.5 * (nodes[m, k] * nodes[m, k] - place * place)
        for j in range(n):
            psi = base[j]
            for k in range(q):
                psi += v_design[j, k] * places[m, k]
            e = np.exp(-abs(psi))
            density += linear[j] * psi - shape[j] * (0.5 * abs(psi) + np.log1p(e))
            half = 0.5 * (1.0 - e) / (1.0 + e)
            first[m, j] = linear[j] - shape[j] * (half if psi > 0.0 else -half)
            if len(hessian):
                second[m, j] = shape[j] * e / ((1.0 + e) * (1.0 + e))
        weights[m] = density
        _score_at(x, u, places[m], eta, first[m], by_node[m])
    largest, total = weights[0], 0.0
    for m in range(1, n_nodes):
        largest = max(largest, weights[m])
    for m in range(n_nodes):
        weights[m] = np.exp(weights[m] - largest)
        total += weights[m]
    score[:] = 0.0
    for m in range(n_nodes):
        weights[m] /= total
        for k in range(len(score)):
            score[k] += weights[m] * by_node[m, k]
    if len(hessian):
        _fill_hessian(x, u, eta, places, weights, second, by_node, score, hessian)


@_jit
def _find_mode(v_design, base, shape, linear, mode, spread):
    """Mode of v given the labels, and the inverse of the transposed Cholesky factor of its negative Hessian there.

    Newton steps, each halved until it rises. Pólya-Gamma sweeps never overshoot, but take thousands of steps for counts that
    are nearly Poisson ones, where E[PG(b, ψ)] is far above the curvature.
    """
    q = len(mode)
    precision, gradient, step, place = np.empty((q, q)), np.empty(q), np.empty(q), np.empty(q)
    height = _fill_equations(v_design, base, shape, linear, mode, precision, gradient)
    for _ in range(_MOST_STEPS):
        _factorise(precision)
        for k in range(q):
            step[k] = gradient[k]
        largest = _solve(precision, step)
        for _ in range(_MOST_HALVED):
            for k in range(q):
                place[k] = mode[k] + step[k]
            reached = _fill_equations(v_design, base, shape, linear, place, precision, gradient)
            if reached >= height or largest < _SETTLED:
                break
            for k in range(q):
                step[k] *= 0.5
        height = reached
        for k in range(q):
            mode[k] = place[k]
        if largest < _SETTLED:
            break
    _factorise(precision)
    for c in range(q):  # columns of the inverse of the factor, transposed
        for k in range(c, q):
            total = 1.0 if k == c else 0.0
            for m in range(c, k):
                total -= precision[k, m] * spread[c, m]
            spread[c, k] = total / precision[k, k]


@_jit
def _fill_equations(v_design, base, shape, linear, place, precision, gradient):
    """log p(y, v) at one place of v, up to a constant; I + Σ_j h_j a_j a_jᵀ, its lower triangle; and Σ_j r_j a_j - v."""
    q, density = len(place), 0.0
    for k in range(q):
        density -= 0.5 * place[k] * place[k]
        gradient[k] = -place[k]
        for c in range(k + 1):
            precision[k, c] = 1.0 if k == c else 0.0
    for j in range(len(base)):
        psi = base[j]
        for k in range(q):
            psi += v_design[j, k] * place[k]
        e = np.exp(-abs(psi))
        density += linear[j] * psi - shape[j] * (0.5 * abs(psi) + np.log1p(e))
        half = 0.5 * (1.0 - e) / (1.0 + e)
        residual = linear[j] - shape[j] * (half if psi > 0.0 else -half)
        h = shape[j] * e / ((1.0 + e) * (1.0 + e))
        for k in range(q):
            gradient[k] += v_design[j, k] * residual
            for c in range(k + 1):
                precision[k, c] += h * v_design[j, k] * v_design[j, c]
    return density


@_jit
def _factorise(matrix):
    """Cholesky factor, in place of the lower triangle."""
    for k in range(len(matrix)):
        for c in range(k + 1):
            total = matrix[k, c]
            for m in range(c):
                total -= matrix[k, m] * matrix[c, m]
            matrix[k, c] = np.sqrt(total) if k == c else total / matrix[c, c]


@_jit
def _solve(factor, target):
    """Solve a system with this Cholesky factor in place; returns the size of the largest entry."""
    q, largest = len(target), 0.0
    for k in range(q):
        for m in range(k):
            target[k] -= factor[k, m] * target[m]
        target[k] /= factor[k, k]
    for k in range(q - 1, -1, -1):
        for m in range(k + 1, q):
            target[k] -= factor[m, k] * target[m]
        target[k] /= factor[k, k]
        largest = max(largest, abs(target[k]))
    return largest


@_jit
def _score_at(x, u, place, eta, residual, score):
    """Σ_j r_j ∂ψ_j at one place of v: by b, and by η."""
    d, (rows, columns, units) = x.shape[1], eta
    score[:] = 0.0
    for j in range(len(x)):
        for k in range(d):
            score[k] += residual[j] * x[j, k]
        for e in range(len(units)):
            score[d + e] += residual[j] * u[j, rows[e]] * place[columns[e]] * units[e]


@_jit
def _fill_hessian(x, u, eta, places, weights, second, by_node, score, hessian):
    """E[-∂² log p(y, v)] - Var[∂ log p(y, v)] given the labels."""
    n, d, q, n_nodes, p = len(x), x.shape[1], u.shape[1], len(weights), len(score)
    slopes, e1, e2, (rows, columns, units) = np.empty(p - d), np.empty(q), np.empty((q, q)), eta
    for k in range(p):
        for c in range(k + 1):
            total = 0.0
            for m in range(n_nodes):
                total -= weights[m] * (by_node[m, k] - score[k]) * (by_node[m, c] - score[c])
            hessian[k, c] = total
    for e in range(p - d):
        if rows[e] == columns[e]:
            hessian[d + e, d + e] -= score[d + e]
    for j in range(n):
        e0 = 0.0
        for k in range(q):
            e1[k] = 0.0
            for c in range(q):
                e2[k, c] = 0.0
        for m in range(n_nodes):
            h = weights[m] * second[m, j]
            e0 += h
            for k in range(q):
                e1[k] += h * places[m, k]
                for c in range(q):
                    e2[k, c] += h * places[m, k] * places[m, c]
        for k in range(d):
            for c in range(k + 1):
                hessian[k, c] += e0 * x[j, k] * x[j, c]
        for e in range(p - d):
            slopes[e] = u[j, rows[e]] * units[e]
            for m in range(d):
                hessian[d + e, m] += e1[columns[e]] * slopes[e] * x[j, m]
            for f in range(e + 1):
                hessian[d + e, d + f] += e2[columns[e], columns[f]] * slopes[e] * slopes[f]
    for k in range(p):
        for c in range(k):
            hessian[c, k] = hessian[k, c]


@_jit
def _typical_square(x, v_design, base, dispersion, size):
    """f₁ E‖s‖² + f₂ max_j ‖a_j‖², about, from the rows alone: of the person's labels nothing is used."""
    n, d, q = len(x), x.shape[1], v_design.shape[1]
    cross, precision, column = np.zeros((d, q)), np.zeros((q, q)), np.empty(q)
    expected, largest = 0.0, 0.0
    for j in range(n):
        e, length = np.exp(-abs(base[j])), 0.0
        h = e / ((1.0 + e) * (1.0 + e)) if dispersion == 0.0 else dispersion / (1.0 + np.exp(-base[j]))
        for k in range(d):
            length += x[j, k] * x[j, k]
            for c in range(q):
                cross[k, c] += h * x[j, k] * v_design[j, c]
        expected += h * length
        for k in range(q):
            length += v_design[j, k] * v_design[j, k]
            for c in range(q):
                precision[k, c] += h * v_design[j, k] * v_design[j, c]
        largest = max(largest, length)
    trace = np.empty(q)
    for k in range(q):
        trace[k] = precision[k, k] / (1.0 + precision[k, k])
        precision[k, k] += 1.0
    _factorise(precision)
    for k in range(d):
        for c in range(q):
            total = cross[k, c]
            for m in range(c):
                total -= precision[c, m] * column[m]
            column[c] = total / precision[c, c]
            expected -= column[c] * column[c]
    for k in range(q):
        for c in range(k + 1):
            expected += (2.0 if k == c else 1.0) * trace[k] * trace[c]
    return size[0] * max(expected, 0.0) + size[1] * largest


@_jit
def _mixed(state):
    """The next word of a sequence of pseudo-random ones (splitmix64)."""
    state = state + np.uint64(0x9E3779B97F4A7C15)
    word = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))


@_jit
def _uniform(word):
    return (np.float64(word >> np.uint64(11)) + 0.5) / 9007199254740992.0


@_jit
def _draw_labels(v_design, base, dispersion, largest, state, labels):
    """b and κ of labels that the model draws for a person's rows; returns the next state."""
    q = v_design.shape[1]
    effects = np.empty(q)
    for k in range(q):
        state = _mixed(state)
        radius = np.sqrt(-2.0 * np.log(_uniform(state)))
        state = _mixed(state)
        effects[k] = radius * np.cos(2.0 * np.pi * _uniform(state))
    for j in range(len(base)):
        psi = base[j]
        for k in range(q):
            psi += v_design[j, k] * effects[k]
        state = _mixed(state)
        u = _uniform(state)
        if dispersion == 0.0:
            labels[0, j] = 1.0
            labels[1, j] = 0.5 if u < 1.0 / (1.0 + np.exp(-psi)) else -0.5
        else:
            count = _count_at(u, psi, dispersion, largest)
            labels[0, j] = count + dispersion
            labels[1, j] = 0.5 * (count - dispersion)
    return state


@_jit
def _count_at(u, psi, dispersion, largest):
    """The count up to ``largest`` at which the distribution with mean r e^ψ exceeds u."""
    log_success = -np.log1p(np.exp(-psi))
    log_mass, count = dispersion * (log_success - psi), 0.0
    total = np.exp(log_mass)
    while total < u and count < largest and count < _MOST_COUNTED:
        log_mass += log_success + np.log((count + dispersion) / (count + 1.0))
        count += 1.0
        total += np.exp(log_mass)
    return count


@_jit
def add_moments(rows, linear, starts, limit, most_rows, moments, outcome):
    """Σ_j x_j x_jᵀ and Σ_j κ_j of every person, of shapes (n_persons, d, d) and (n_persons,): both by the same factor, for a
    norm of at most ``limit``, and for as much as ``most_rows`` rows.
    """
    d = rows.shape[1]
    for i in range(len(starts) - 1):
        total = moments[i]
        for j in range(starts[i], starts[i + 1]):
            outcome[i] += linear[j]
            for k in range(d):
                for c in range(k + 1):
                    total[k, c] += rows[j, k] * rows[j, c]
        for k in range(d):
            for c in range(k):
                total[c, k] = total[k, c]
        clip = min(1.0, limit / _norm(total.ravel(), 1.0), most_rows / max(starts[i + 1] - starts[i], 1))
        outcome[i] *= clip
        for k in range(d):
            for c in range(d):
                total[k, c] *= clip
