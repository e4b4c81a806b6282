"""Models that see the data through one matrix of second moments: linear regression and factors."""
