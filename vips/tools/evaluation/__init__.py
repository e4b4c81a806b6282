"""How well a fitted classifier predicts private records: one released histogram, and what follows from it."""
