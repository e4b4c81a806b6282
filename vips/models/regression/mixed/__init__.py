"""Mixed effects: regressions whose records are persons, each with effects of its own."""
