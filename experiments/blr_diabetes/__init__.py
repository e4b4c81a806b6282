"""AUC against ε on first encounters of 69,973 diabetic patients, 1,923 binary features. Their list is declared public."""
