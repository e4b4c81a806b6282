"""A mutant is a deliberately broken copy of the code. A check must notice it."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest

from tests.core.accounting.caches import forget
from tests.laws.cases import BY_NAME


def check_notices(check: Callable[[], None], mutant: Callable, monkeypatch, says: str | None = None) -> None:
    """Raise unless ``check()`` fails on the mutant.

    Parameters
    ----------
    mutant : function of a MonkeyPatch
        Breaks the code.
    says : str, optional
        What the check says then, as a pattern. An error of another kind is no notice.
    """
    mutant(monkeypatch)
    forget()
    with pytest.raises(AssertionError, match=says):
        check()
    forget()


def add(patch, owner, name: str, value) -> None:
    """Give ``owner`` a name that the code does not have. Every other patch fails where there is nothing to replace."""
    assert not hasattr(owner, name), f"the code has a {name} of its own"
    patch.setattr(owner, name, value, raising=False)


def sum_then_rounded(self, weights, blocks, lattice):
    """What ``rounded_sum`` avoids: a floating-point sum, which depends on its order, rounded at the end."""
    return {name: lattice.rounded(value, blocks[name]) for name, value in self.weighted_sum(weights).items()}


def noticed(*rows):
    """A test that checks notice mutants, of rows (mutant, check) or (mutant, check, what the check says).

    A check that needs an argument gets an empty folder.
    """

    def test(mutant, check, says, monkeypatch, tmp_path):
        needed = [of for of in inspect.signature(check).parameters.values() if of.default is of.empty]
        check_notices(lambda: check(*[tmp_path] * len(needed)), mutant, monkeypatch, says)

    return pytest.mark.parametrize(("mutant", "check", "says"), [(*row, None)[:3] for row in rows])(test)


def of_laws(module, rows):
    """A test that laws of a module notice mutants, of rows (mutant, name of the law, name of the case, what the law says)."""

    def test(mutant, law, case, says, monkeypatch):
        check_notices(lambda: getattr(module, law)(BY_NAME[case]), mutant, monkeypatch, says)

    ids = [f"{mutant.__name__}-{case}-{law}" for mutant, law, case, _ in rows]
    return pytest.mark.parametrize(("mutant", "law", "case", "says"), rows, ids=ids)(test)
