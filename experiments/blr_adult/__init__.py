"""AUC against ε on UCI Adult: 48,842 people, 108 features."""
