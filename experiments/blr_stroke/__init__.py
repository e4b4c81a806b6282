"""AUC against ε on generated records of the shape of the paper's stroke data: 12,586 by 4,146, 14 % positive."""
