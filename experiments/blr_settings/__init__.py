"""How the defaults of Bayesian logistic regression were chosen: on other data than those that results are reported on."""
