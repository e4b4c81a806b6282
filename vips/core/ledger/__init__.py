"""Budgets of data sets, in files. Imported lazily: plans import ``open_ledger``, and ledgers import plans."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
