"""Draws the pictures of the documentation, with the code that stands above each of them on its page, or in ``drawn.py``.

A picture is written as ``![words](pictures/name.svg)``. The blocks of its page run in their order. Then ``drawn.name`` draws it
or, where there is none, the block directly above, which runs twice, for light and for dark screens: nothing but the drawing
belongs there. The same blocks run as tests. ``pictures/name.svg``, which GitHub shows, is drawn if it is absent, and committed.
A page without Python shows a picture of another page. A link to ``examples/name.html`` shows the file of that name in the
folder that the page's code calls ``folder``.
"""

from __future__ import annotations

import doctest
import re
import shutil
import warnings
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

PICTURE = re.compile(r"!\[([^\]]*)\]\(pictures/(\w+)\.svg\)")
_EXAMPLE = re.compile(r'href="examples/(\w+\.html)"')
_PARTS = re.compile(r"^```python\n(.*?)^```$|" + PICTURE.pattern, flags=re.MULTILINE | re.DOTALL)
_DRAWN = Path(__file__).with_name("drawn.py")
_PALE = "#cfd0d0"
_STYLES = {
    "light": {},
    "dark": dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), _PALE)
    | {"axes.facecolor": "none", "legend.facecolor": "none", "hatch.color": _PALE},
}


def as_shown(text: str) -> str:
    """A page whose pictures come in two versions, of which the theme shows one, and whose code has no empty last lines."""

    def both(found):
        words, name = " ".join(found[1].split()), found[2]
        return "\n\n".join(
            f"```{{image}} pictures/{name}-{style}.svg\n:class: only-{style}\n:alt: {words}\n```" for style in _STYLES
        )

    return re.sub(r"\n\n```$", "\n```", PICTURE.sub(both, text), flags=re.MULTILINE)


def steps(text: str) -> list[tuple[str, tuple[str, ...]]]:
    """The blocks of Python of a page, each with the names of the pictures below it; no block for a picture of ``drawn.py``."""
    found: list[tuple[str, tuple[str, ...]]] = []
    for part in _PARTS.finditer(text):
        if part[1] is not None:
            found.append((part[1], ()))
        elif "```python\n" in text and f"\ndef {part[3]}(" in _DRAWN.read_text(encoding="utf-8"):
            found.append(("", (part[3],)))
        elif found:
            found[-1] = (found[-1][0], (*found[-1][1], part[3]))
    return found


def draw(page: Path, folder: Path) -> None:
    """Run the code of a page, and write its pictures, and the files that it shows, to ``folder``."""
    import matplotlib

    matplotlib.use("Agg")
    import drawn
    import matplotlib.pyplot as plt

    text = page.read_text(encoding="utf-8")
    space: dict = {}
    for source, names in steps(text):
        code = "".join(example.source for example in doctest.DocTestParser().get_examples(source))
        code = compile(code, str(page), "exec")
        for style in _STYLES if names else ("light",):
            plt.close("all")
            with (
                plt.rc_context(_STYLES[style] | {"svg.hashsalt": "vips"}),
                redirect_stdout(StringIO()),
                warnings.catch_warnings(),
            ):
                warnings.simplefilter("ignore")
                exec(code, space)
                for name in names:
                    if not source:
                        getattr(drawn, name)(SimpleNamespace(**space))
                    figure = plt.gcf() if plt.get_fignums() else space["axes"].figure
                    for file in (folder / f"{name}-{style}.svg", folder / f"{name}.svg"):
                        clear = file.stem != name
                        if clear or not file.exists():
                            figure.savefig(file, transparent=clear, bbox_inches="tight", metadata={"Date": None})
    plt.close("all")
    for name in _EXAMPLE.findall(text):
        shutil.copy(space["folder"] / name, folder / "extra/examples" / name)


def draw_all(docs: Path) -> None:
    """Draw the pictures of all pages that are older than their page, or than this file."""
    folder = docs / "pictures"
    (folder / "extra/examples").mkdir(parents=True, exist_ok=True)
    for page in sorted(docs.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        files = [folder / f"{name}-{style}.svg" for _, names in steps(text) for name in names for style in _STYLES]
        files += [folder / "extra/examples" / name for name in _EXAMPLE.findall(text)]
        newest = max(file.stat().st_mtime for file in (page, _DRAWN, Path(__file__)))
        kept = [folder / f"{name}.svg" for _, names in steps(text) for name in names]
        if not all(file.exists() for file in kept) or any(not f.exists() or f.stat().st_mtime < newest for f in files):
            draw(page, folder)
