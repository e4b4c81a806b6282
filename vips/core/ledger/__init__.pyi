from .ledger import LedgerError, PrivacyBudgetError, PrivacyLedger, current_ledger

__all__ = ["LedgerError", "PrivacyBudgetError", "PrivacyLedger", "current_ledger"]
