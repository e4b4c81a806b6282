# Every target builds its own virtual environment in .venv; nothing is needed but Python >= 3.11 and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test lint bench docs clean

demo: $(VENV)/plot.stamp        ## topics of a real corpus, private beside non-private
	$(BIN)/python -m experiments demo

test: $(VENV)/test.stamp        ## the whole suite
	$(BIN)/python -m pytest -m "not slow"

lint: $(VENV)/lint.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

bench: $(VENV)/bench.stamp      ## against peers on the same work, exact noise against NumPy's
	$(BIN)/python -m experiments.benchmarks.lda
	$(BIN)/python -m experiments.benchmarks.noise
	$(BIN)/python -m experiments.benchmarks.logistic
	$(BIN)/python -m experiments.benchmarks.sbn
	$(BIN)/python -m experiments.benchmarks.scaling

docs: $(VENV)/docs.stamp
	$(BIN)/python -m sphinx -W -b html docs docs/_build/html

$(VENV)/%.stamp: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable ".[$*]"
	touch $@

clean:
	rm -rf $(VENV) docs/_build .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
