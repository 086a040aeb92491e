# Everything a fresh machine needs is Python 3.11 to 3.13, pip, make and git.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test test-all check docs bench format clean

demo: $(READY)
	$(BIN)/wastenot demo --out demo/out

test: $(READY)
	$(BIN)/pytest -n 2 --dist worksteal -m "not slow"
	@echo "The slow tests were left out; make test-all runs them too."

test-all: $(READY)
	$(BIN)/pytest -n 2 --dist worksteal

check: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "The documentation is at $(CURDIR)/site/index.html"

bench: $(READY)
	$(BIN)/python -m benchmarks

format: $(READY)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(None if (3, 11) <= sys.version_info[:2] < (3, 14) else \
	  f"wastenot needs Python 3.11 to 3.13, this is {sys.version.split()[0]}; name another: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
	  --editable '.[report,postgresql,nvidia,torch,dev,docs]'
	@touch $(READY)

clean:
	rm -rf $(VENV) demo/out site
