# Every target makes its own environment in .venv and installs what it needs, so each works as the first command.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMPS := $(VENV)/.stamps
LOWEST := .venv-lowest
FRESH := .venv-release
export HF_HUB_OFFLINE ?= 1
export TOKENIZERS_PARALLELISM ?= false

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow test-lowest fuzz quality style bench notebooks docs release-check clean

help:  ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

demo: $(STAMPS)/base  ## Protect a small model, steal it, find the mark; writes drw-demo
	$(BIN)/drw-hf demo

test: $(STAMPS)/test  ## Run the tests (without those marked slow)
	$(BIN)/pytest -m "not slow" -n auto --dist loadfile --no-loadscope-reorder

test-slow: $(STAMPS)/test  ## Run the long trainings
	$(BIN)/pytest -m slow

fuzz: $(STAMPS)/fuzz  ## Look for files that crash their reader, a minute for each kind (SECONDS=60); writes fuzz-finds
	cd tests && ../$(BIN)/python -m fuzz --seconds $(or $(SECONDS),60) --finds ../fuzz-finds

test-lowest: $(LOWEST)/.installed  ## Run the tests with the lowest versions that setup.cfg allows
	LOWEST=1 $(LOWEST)/bin/pytest -m "not slow" -n auto --dist loadfile --no-loadscope-reorder

quality: $(STAMPS)/quality  ## Check style, common mistakes and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

style: $(STAMPS)/quality  ## Repair style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMPS)/test  ## Measure speed as ratios; writes docs/results/bench.json
	$(BIN)/python -m tests.bench

notebooks: $(STAMPS)/test  ## Run the notebooks and keep their outputs
	$(BIN)/python -m tests.notebooks

docs: $(STAMPS)/docs  ## Build the documentation into docs/_build/html
	$(BIN)/sphinx-build -W --keep-going -b html docs docs/_build/html

release-check: $(STAMPS)/release  ## Build, check the metadata, install the wheel elsewhere and play the demo from there
	rm -rf dist $(FRESH)
	$(BIN)/python -m build
	$(BIN)/twine check --strict dist/*
	$(PYTHON) -m venv $(FRESH)
	$(FRESH)/bin/pip install -q -c constraints.txt dist/*.whl
	cd $(FRESH) && bin/drw-hf demo

clean:  ## Remove the environment and everything built
	rm -rf $(VENV) $(LOWEST) $(FRESH) build dist docs/_build drw-demo fuzz-finds

$(STAMPS)/base: setup.cfg pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q -c constraints.txt -e .
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/%: $(STAMPS)/base
	$(BIN)/pip install -q -c constraints.txt -e ".[$*]"
	@touch $@

# uv keeps what is there already. So the environment is made anew, and torch is put there first, without the newest of
# everything that it needs: pip finds the small build of it that constraints.txt means.
$(LOWEST)/.installed: setup.cfg pyproject.toml constraints.txt
	rm -rf $(LOWEST)
	$(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/pip install -q uv
	$(LOWEST)/bin/pip install -q --no-deps -c constraints.txt torch
	$(LOWEST)/bin/uv pip install -q --python $(LOWEST)/bin/python --resolution lowest-direct -c constraints.txt -e ".[test]"
	@touch $@
