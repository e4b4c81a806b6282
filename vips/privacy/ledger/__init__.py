"""Budgets of data sets, in files. Lazy: a plan needs to know which ledger is open, a ledger needs plans."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
