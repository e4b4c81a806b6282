"""δ against ε of one mechanism by every route: what accounting alone is worth."""
