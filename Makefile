# Everything a fresh machine needs is Python 3.11 to 3.13, pip, make and git.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable
REPORT_READY := $(VENV)/.ready-report
READY := $(VENV)/.ready

.PHONY: demo test test-all check docs bench format clean

demo: $(REPORT_READY)
	$(BIN)/wastenot demo
	@echo "wastenot is in $(VENV); in this shell first: . $(BIN)/activate"

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

$(REPORT_READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(None if (3, 11) <= sys.version_info[:2] < (3, 14) else \
	  f"wastenot needs Python 3.11 to 3.13, this is {sys.version.split()[0]}; name another: make PYTHON=python3.12")'
	@echo "Installing wastenot into $(VENV), 0.8 GB ..."
	@$(PYTHON) -m venv $(VENV)
	@$(INSTALL) '.[report,serve]'
	@touch $(REPORT_READY)

$(READY): $(REPORT_READY)
	@echo "Installing what tests and documentation need, 1.5 GB with PyTorch ..."
	@$(INSTALL) '.[report,postgresql,nvidia,torch,serve,cluster,dev,docs]'
	@touch $(READY)

clean:
	rm -rf $(VENV) wastenot-demo site
