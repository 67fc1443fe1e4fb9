# make demo    a small study on the embedded digits, in minutes on a laptop CPU
# make test    everything that CI tests; fetches MNIST, Fashion-MNIST and CIFAR-10 once (~180 MB)
# make lint types format slow data env   one thing each
# PYTHON=python3.13 make ...             another Python (3.11 or newer)

PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
DEMO_SWEEP := --sweep='algorithm.local_steps=[1,5]' --sweep='algorithm.learning_rate=[0.03,0.1,0.3]' --sweep='seed=range(3)'
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.DEFAULT_GOAL := help
.PHONY: help env demo data test slow lint types format

help:
	@grep '^# make' Makefile | sed 's/^# //'

env: $(STAMP)

# The lock was made on Python 3.11. Should a newer Python lack a wheel of some locked version, the ranges
# of pyproject.toml decide there; on 3.11 a failure is a failure.
$(STAMP): requirements.lock pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) not found: install Python 3.11 or newer"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "$$($(PYTHON) --version) is too old: Python 3.11 or newer is needed, e.g. PYTHON=python3.12 make"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "$(PYTHON) lacks the module venv or ensurepip; on Debian or Ubuntu: apt-get install python3-venv"; exit 1; }
	@test -x $(BIN)/pip || { echo "making .venv"; $(PYTHON) -m venv --clear .venv; }
	@echo "installing $$(grep -c == requirements.lock) locked packages into .venv (once, about 1.2 GB, a minute or two)"
	@$(PIP) install --requirement requirements.lock || { \
	  $(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 12))' && \
	  echo "the lock does not install on $$($(BIN)/python --version): using the ranges of pyproject.toml" && \
	  $(PIP) install --editable '.[experiments,dev]'; }
	@$(PIP) --quiet install --no-deps --editable .
	@touch $@

# The folder is the demo's own, so a second demo starts afresh.
demo: $(STAMP)
	rm -rf runs/demo
	$(BIN)/python -m experiments.run --config=experiments/configs/fedzo_digits.py $(DEMO_SWEEP) --workdir=runs/demo

data: $(STAMP)
	$(BIN)/python -m zofed.data fetch cifar10 fashion_mnist mnist

test: data
	$(BIN)/python -m pytest --require-data --numprocesses=auto --maxprocesses=4

slow: data
	$(BIN)/python -m pytest --require-data -m slow

lint: $(STAMP)
	$(BIN)/ruff format --check
	$(BIN)/ruff check

types: $(STAMP)
	$(BIN)/pyright

format: $(STAMP)
	$(BIN)/ruff format
	$(BIN)/ruff check --fix
