"""The publisher's page: what was released, what noise hides, and no markup from names."""

import re

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

from vips import PrivacyBudget, PrivateTable

COLUMNS = {
    "age": (18, 90),
    "smoker": ["no", "yes"],
    "packs": ["one", "more", "(missing)"],
    "<b>region": ["n", "s", "<i>moon"],
}
RULES = [{"smoker": ["no"], "packs": "(answered)"}]


def people(n):
    rng = np.random.default_rng(0)
    smokes = rng.random(n) < 0.3
    return pd.DataFrame(
        {
            "age": rng.integers(18, 91, n).astype(float),
            "smoker": np.where(smokes, "yes", "no"),
            "packs": np.where(smokes, rng.choice(["one", "more"], n), None),
            "<b>region": np.where(rng.random(n) < 0.2, None, rng.choice(["n", "s"], n)),
        }
    )


def page_of(table, folder, **settings):
    table.to_html(folder / "table.html", **settings)
    return (folder / "table.html").read_text(encoding="utf-8")


@pytest.mark.filterwarnings("ignore::vips.PrivacyWarning")
def test_the_page_says_what_is_released_and_what_is_hidden(tmp_path):
    table = PrivateTable(columns=COLUMNS, rules=RULES, privacy=PrivacyBudget(1.0, 1e-6)).fit(people(20_000))
    page = page_of(table, tmp_path, title="Survey <1>")
    assert "<b>region" not in page
    assert "<i>moon" not in page
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page[page.index("<body") :]))
    assert "Survey &lt;1&gt;" in text
    assert f"ε = {table.privacy_.epsilon():.4g}" in text
    assert "smoker: no , and packs: (answered)" in text
    assert (
        "noise does not tell from 0 1 of 3 answers ( &lt;i&gt;moon ). No answer: 20%; shares are of the others." in text
    )
    share = 100.0 * table.shares("smoker").loc["yes"]
    assert " ".join(["yes", *(f"{share[name]:.2f}" for name in ("share", "lower", "upper"))]) in text.replace("  ", " ")
    cells = 100.0 * table.pairs("smoker", "packs").loc[("yes", "one")]
    assert f"{cells['share']:.2f} ± {cells['upper'] - cells['share']:.2f}" in text
    assert "No single answer" not in text
    assert f"noise of deviation {np.sqrt(table._pairs().cell_var[0, 1]):.1f} in each count" in text


def test_pages_without_a_guarantee_say_so_and_large_tables_are_named(tmp_path):
    columns = {"a": [f"a{i}" for i in range(30)], "b": [f"b{i}" for i in range(20)], "c": ["no", "yes", "perhaps"]}
    rng = np.random.default_rng(1)
    table = PrivateTable(columns=columns).fit(
        pd.DataFrame({name: rng.choice(np.array(answers, dtype=object), 5_000) for name, answers in columns.items()})
    )
    page = page_of(table, tmp_path, level=0.9)
    assert "has no privacy guarantee" in page
    assert "Too large for this page, and in the release: a and b." in page
    assert "No single answer: each stands out of the noise." in page
    assert "Limits are those of 90 %" in page
    assert "Means" not in page
    with pytest.raises(NotFittedError):
        PrivateTable(columns=columns).to_html(tmp_path / "none.html")
