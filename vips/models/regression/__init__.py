"""Labels and counts from features: logistic, binomial and negative binomial regression."""
