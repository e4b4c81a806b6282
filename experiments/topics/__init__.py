"""Topic models: Wikipedia, docstrings, a million documents."""
