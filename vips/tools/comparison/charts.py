"""Figures as SVG inside the page, in its colours and fonts, with a description for readers who cannot see them.

Matplotlib draws in placeholder colours, which become CSS variables that differ in light and dark schemes. Names from
outside never go through Matplotlib, which would read dollar signs as formulas: captions show them.

A curve of a marginal goes over the range of its mass, and is scaled to its own peak. Positive parameters and probabilities are
shown on a logarithmic scale, as densities of t = log x: those have one peak and vanish on both sides, also where the density of
x itself is infinite at 0.
"""

from __future__ import annotations

import base64
import io
import xml.etree.ElementTree as ET
from collections.abc import Sequence

import matplotlib
import numpy as np
from markupsafe import Markup
from matplotlib.figure import Figure
from matplotlib.image import imsave
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from vips._pages.page import own_markup
from vips.expfam import DiagonalGaussian, Dirichlet
from vips.expfam.divergences import Family
from vips.tools.comparison.curve import UtilityCurve

__all__ = ["curve", "draw_epsilon", "draw_marginals", "draw_utility", "image"]

_COLOURS = {"text": "#010101", "line": "#020202", "private": "#030303", "baseline": "#040404"}
_STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "vips",
    "font.size": 8.0,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": _COLOURS["text"],
    "axes.labelcolor": _COLOURS["text"],
    "axes.edgecolor": _COLOURS["text"],
    "xtick.color": _COLOURS["text"],
    "ytick.color": _COLOURS["text"],
    "grid.color": _COLOURS["line"],
    "grid.linewidth": 0.5,
}
_DASHES = {"private": "-", "baseline": (0, (4, 2))}
_HREF = "{http://www.w3.org/1999/xlink}href"
_N_POINTS = 161  # odd: one is at the mean
_FAR = 14.0  # a millionth of the mean: tails of vague Betas extend over a hundred powers of ten


def draw_marginals(private: Family, baseline: Family, description: str, identity: str) -> Markup:
    """Two marginals on one axis."""

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        drawn = {"baseline": baseline, "private": private}
        curves = [curve(marginal) for marginal in drawn.values()]
        for kind, (x, y) in zip(drawn, curves, strict=True):
            axes.fill_between(x, y, color=_COLOURS[kind], alpha=0.18, linewidth=0.0)
            axes.plot(x, y, color=_COLOURS[kind], linestyle=_DASHES[kind], linewidth=1.4)
        lower, upper = min(x.min() for x, _ in curves), max(x.max() for x, _ in curves)
        if not isinstance(private, DiagonalGaussian) and upper > 3.0 * lower:  # positive
            axes.set_xscale("log")
            _plain_log(axes.xaxis, 4, (1.0,) if upper > 30.0 * lower else (1.0, 2.0, 5.0))
        else:
            axes.xaxis.set_major_locator(MaxNLocator(4))
        axes.set_ylim(0.0, 1.08)
        axes.yaxis.set_major_locator(NullLocator())
        axes.spines["left"].set_visible(False)

    return _svg(draw, (3.0, 1.35), description, identity)


def draw_epsilon(lines: dict[str, Sequence[float]], deltas: Sequence[float], marks, description: str) -> Markup:
    """ε against δ of private fits; ``marks`` holds (kind, δ, ε) where a plan was calibrated."""

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        for kind, epsilons in lines.items():
            axes.plot(deltas, epsilons, color=_COLOURS[kind], linestyle=_DASHES[kind], linewidth=1.6)
        for kind, delta, epsilon in marks:
            axes.plot([delta], [epsilon], "o", color=_COLOURS[kind], markersize=5)
        axes.set(xscale="log", xlabel="δ", ylabel="ε", ylim=(0.0, None))
        _plain_log(axes.xaxis, 6)
        axes.grid(True)

    return _svg(draw, (4.6, 2.4), description, "epsilon")


def draw_utility(utility: UtilityCurve, description: str) -> Markup:
    """Scores against ε: means and ranges."""

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        mean = utility.scores.mean(axis=1)
        spread = np.abs(np.stack([utility.scores.min(axis=1), utility.scores.max(axis=1)]) - mean)
        axes.errorbar(utility.epsilons, mean, spread, color=_COLOURS["private"], marker="o", markersize=4, capsize=3)
        if utility.baseline is not None:
            axes.axhline(utility.baseline.mean(), color=_COLOURS["baseline"], linestyle=_DASHES["baseline"])
        axes.set(xscale="log", xlabel="ε", ylabel="score")
        _plain_log(axes.xaxis, 6, (1.0, 2.0, 5.0))
        axes.grid(True)

    return _svg(draw, (4.6, 2.4), description, "utility")


def image(values: np.ndarray, largest: float) -> str:
    """A square of signed numbers as the URL of a PNG: the colour shows the sign, its strength the size, up to ``largest``."""
    size = np.clip(np.abs(values) / largest if largest > 0.0 else np.zeros(values.shape), 0.0, 1.0)
    pixels = np.empty((*values.shape, 4), dtype=np.uint8)
    pixels[..., :3] = np.where(values[..., None] < 0.0, (200, 60, 130), (0, 145, 125))
    pixels[..., 3] = 17 * np.rint(15.0 * size)  # 16 levels are enough for the eye, and keep files small
    file = io.BytesIO()
    imsave(file, pixels, format="png", metadata={"Software": None})
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode('ascii')}"


def _plain_log(axis, n_ticks: int, steps=(1.0,)) -> None:
    """Ticks as numbers, not as formulas with small exponents."""
    axis.set_major_locator(LogLocator(subs=steps, numticks=n_ticks))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _svg(draw, size: tuple[float, float], description: str, identity: str) -> Markup:
    """The SVG of a figure on which ``draw`` draws, under Matplotlib's default settings instead of the caller's."""
    file = io.BytesIO()
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        figure = Figure(figsize=size, layout="constrained")
        draw(figure)
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(file, format="svg", transparent=True, metadata=nothing)
    root = ET.fromstring(file.getvalue())
    used = {element.attrib[_HREF] for element in root.iter() if _HREF in element.attrib}
    for element in list(root.iter()):
        for rules in element.findall("{*}style"):
            element.remove(rules)  # they would apply to the whole page
        _adopt(element, identity, used)
    width, height = (float(number) for number in root.attrib["viewBox"].split()[2:])
    root.attrib = {"viewBox": f"0 0 {width:g} {height:g}", "role": "img", "aria-label": description}
    text = ET.tostring(root, encoding="unicode")
    for role, colour in _COLOURS.items():
        text = text.replace(colour, f"var(--{role})")
    return own_markup(text)


def _adopt(element: ET.Element, identity: str, used: set[str]) -> None:
    """Adapt one element to an HTML page: no namespaces, unique ids, the page's font."""
    element.tag = element.tag.rpartition("}")[2]
    original_id = element.attrib.pop("id", None)
    if original_id is not None and (f"#{original_id}" in used or element.tag == "clipPath"):
        element.attrib["id"] = f"{identity}-{original_id}"
    if _HREF in element.attrib:
        element.attrib["href"] = f"#{identity}-{element.attrib.pop(_HREF)[1:]}"
    if "clip-path" in element.attrib:
        element.attrib["clip-path"] = element.attrib["clip-path"].replace("url(#", f"url(#{identity}-")
    if element.tag == "text":
        # Matplotlib computes widths in its own font; the page's font is similar enough
        rules = [rule for rule in element.attrib.get("style", "").split(";") if not rule.strip().startswith("font")]
        element.attrib["style"] = ";".join([*rules, "font: 8px var(--font)"])


# -- curves of marginals -------------------------------------------------------------------------------------------


def curve(p: Family) -> tuple[np.ndarray, np.ndarray]:
    """x, and density ÷ largest density, of one marginal from ``divergences.marginals``."""
    if isinstance(p, DiagonalGaussian):
        z = np.linspace(-4.0, 4.0, _N_POINTS)
        return p.mean.item() + z * p.std.item(), np.exp(-0.5 * z**2)
    mean, std = (np.ravel(values)[0] for values in (p.mean, np.sqrt(p.var)))
    width = std / mean
    t = np.log(mean) + np.linspace(-min(_FAR, 8.0 * width), np.log1p(8.0 * width), _N_POINTS)
    if isinstance(p, Dirichlet):  # two categories: x has a Beta
        ours, other = np.ravel(p.concentration)
        below_one = np.minimum(t, -1e-9)
        log_density = ours * below_one + (other - 1.0) * np.log(-np.expm1(below_one))
    else:  # Gamma
        log_density = p.shape.item() * t - p.rate.item() * np.exp(t)
    return np.exp(t), np.exp(log_density - log_density.max())
