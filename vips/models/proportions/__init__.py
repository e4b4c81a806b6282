"""Shares of categories: the Dirichlet-multinomial."""
