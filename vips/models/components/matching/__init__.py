"""Parameters whose simulated records give the totals that a fit has released, with their uncertainty."""
