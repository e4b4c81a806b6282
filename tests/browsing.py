"""Pages in a headless Chromium: its messages and requests, what cannot be seen, contrasts, what axe finds.

Needs Playwright for Python and axe (both in the group ``browser``), and a Chromium: the system's, or Playwright's own.
"""

import os
import shutil
import time
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest


def _path_of_chromium(playwright):
    """Path of a Chromium, or None."""
    path = playwright.chromium.executable_path
    names = ("chromium", "chromium-browser", "google-chrome")
    return path if os.path.exists(path) else next(filter(None, map(shutil.which, names)), None)


@contextmanager
def chromium():
    """A browser; without one, or without Playwright, the test is skipped."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install --group browser")
    with sync_api.sync_playwright() as playwright:
        path = _path_of_chromium(playwright)
        if path is None:
            pytest.skip("no Chromium: playwright install chromium")
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


class Visit:
    """A file in its own page, with the browser's messages and requests."""

    def __init__(self, browser, path, **more):
        self.page = browser.new_page(**more)
        self.messages, self.requested = [], []
        self.page.on("console", lambda message: self.messages.append(message.text))
        self.page.on("pageerror", lambda error: self.messages.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.messages.append(dialog.message), dialog.dismiss()))
        self.page.on("request", lambda request: self.requested.append(request.url))
        start = time.perf_counter()
        self.page.goto(Path(path).as_uri(), wait_until="load")
        self.seconds = time.perf_counter() - start

    def asked_for(self):
        """Requests for anything but the file and the images in it."""
        return [url for url in self.requested if not url.startswith("data:image/png")][1:]

    def style(self, selector, name):
        return self.page.eval_on_selector(selector, f"element => getComputedStyle(element)['{name}']")


def luminance(colour):
    """The relative luminance of "rgb(r, g, b)", as WCAG 2.2 defines it."""
    channels = np.array([float(number) for number in colour.split("(")[1].rstrip(")").split(",")[:3]]) / 255.0
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def contrast(one, other):
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


# Texts and images beyond the right edge, and boxes that scroll sideways or cut text off.
OUT_OF_SIGHT = """() => [...document.querySelectorAll("main *, aside *, header *, footer *")].filter(element => {
  const box = element.getBoundingClientRect();
  const hides = getComputedStyle(element).overflowX !== "visible" && element.scrollWidth > element.clientWidth + 1;
  return box.width > 0 && (box.right > innerWidth + 0.5 || box.left < -0.5 || (hides && !element.closest("svg")));
}).map(element => element.outerHTML.slice(0, 200))"""


def axe():
    """The script of axe; without the package that carries it, the test is skipped."""
    carrier = pytest.importorskip("axe_playwright_python", reason="needs axe: pip install --group browser")
    return files(carrier).joinpath("axe.min.js").read_text(encoding="utf-8")


def findings(page, script):
    """What ``script``, that of axe, calls serious or critical on an unfolded page: a rule, a place and a reason each."""
    page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    page.evaluate(
        "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
    )  # sizes have settled
    page.evaluate(script)
    violations = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")["violations"]
    return [
        f"{violation['id']}: {node['html'][:200]} {node['failureSummary']}"
        for violation in violations
        if violation["impact"] in ("serious", "critical")
        for node in violation["nodes"]
    ]
