# Every target builds its own virtual environment in .venv; nothing is needed but Python >= 3.11 and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# `make test CONSTRAINTS=/dev/null` installs the newest versions.
CONSTRAINTS ?= constraints.txt

PYTEST := $(BIN)/python -m pytest --numprocesses logical --maxprocesses 8 --dist worksteal
# What the inner loop needs: the contract, and one model of each family.
FAST := tests/laws/test_laws.py tests/core/test_plan.py tests/core/mechanism/test_release.py tests/core/test_engine.py \
	tests/test_layers.py tests/test_own_model.py tests/data/test_sources.py tests/expfam

# Processes that tests start read compiled files of the package, also where the environment would keep them from being written.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-fast test-all lint bench docs lock dist clean

demo: $(VENV)/plot.stamp        ## topics of a real corpus, private beside non-private
	$(BIN)/python -m experiments demo

test: $(VENV)/kernels.stamp     ## what every change must pass
	$(PYTEST) -m "not slow"

test-all: $(VENV)/kernels.stamp ## and the slow tests, with new draws and generated examples, before a release
	VIPS_TESTS_DRAW=afresh HYPOTHESIS_PROFILE=default $(PYTEST)

test-fast: $(VENV)/test.stamp   ## the inner loop, in under a minute
	$(PYTEST) -m "not slow and not thorough" $(FAST)

lint: $(VENV)/lint.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/bench.stamp      ## against peers on the same work, exact noise against NumPy's
	$(BIN)/python -m experiments.benchmarks.lda
	$(BIN)/python -m experiments.benchmarks.lda_scores
	$(BIN)/python -m experiments.benchmarks.noise
	$(BIN)/python -m experiments.benchmarks.private
	$(BIN)/python -m experiments.benchmarks.logistic
	$(BIN)/python -m experiments.benchmarks.sbn
	$(BIN)/python -m experiments.benchmarks.latent_classes
	$(BIN)/python -m experiments.benchmarks.mixture
	$(BIN)/python -m experiments.benchmarks.sequences
	$(BIN)/python -m experiments.benchmarks.scaling
	$(BIN)/python -m experiments.benchmarks.waits

docs: $(VENV)/docs.stamp
	$(BIN)/python -m sphinx -W -j auto -b html docs docs/_build/html

# Compiled once, before workers of pytest start, and where files with kernels have changed; the second process begins with what
# takes longest.
$(VENV)/kernels.stamp: $(VENV)/test.stamp $(shell grep -rl --include="*.py" "exact.compiled import" vips)
	$(BIN)/python -m vips compile > /dev/null & \
	$(BIN)/python -m vips compile LatentDirichletAllocation SwitchingLinearDynamicalSystem GaussianHMM > /dev/null && wait $$! && touch $@

$(VENV)/%.stamp: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet "pip>=25.1"
	$(BIN)/python -m pip install --quiet --constraint $(CONSTRAINTS) --editable . --group $*
	touch $@

lock:                           ## constraints.txt, with the newest versions of everything
	$(PYTHON) -m venv --clear $(VENV)/lock
	$(VENV)/lock/bin/python -m pip install --quiet "pip>=25.1"
	$(VENV)/lock/bin/python -m pip install --quiet --editable ".[arviz]" $(addprefix --group ,test docs bench browser lint types)
	$(VENV)/lock/bin/python -m pip freeze --exclude-editable > constraints.txt

dist: $(VENV)/test.stamp        ## the archive of the source and the wheel, in dist
	$(BIN)/python -m hatchling build

clean:
	rm -rf $(VENV) dist docs/_build docs/generated docs/pictures/extra docs/pictures/*-*.svg .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
