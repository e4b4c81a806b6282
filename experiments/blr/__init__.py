"""Shared by the experiments with logistic regression: the methods compared, the splits, the table and the plot of Figure 5."""
