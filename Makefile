# make demo       see it work: on a GPU if there is one, on the CPU otherwise
# make test       the tests that need no GPU
# make test-thorough  the rest of them: every variant of what the others try for some
# make test-browser  the tests of pages in a browser; installs what they need, but for the browser
# make test-peers the emulator beside Triton and under NVIDIA's libraries, which it downloads (1 GB on the disk)
# make check      format, lint, types, architecture
# make format     put the format right
# make docs       write the generated tables and pictures of docs/ anew
# make clean      remove what the others made
#
# The first call makes .venv and needs the network; later ones do not. PYTHON=… chooses another Python.

VENV ?= .venv
BIN := $(VENV)/bin
TESTS ?= tests
TORCH := 2.13.0

.PHONY: demo test test-thorough test-browser test-peers check format docs clean help
.DEFAULT_GOAL := help

help:
	@sed -n 's/^# \(make .*\)/\1/p' Makefile

demo: $(VENV)/.installed
	@$(BIN)/tilewise demo

test: $(VENV)/.installed-dev
	@$(BIN)/pytest -n auto --maxprocesses 4 --dist worksteal $(TESTS)

test-thorough: $(VENV)/.installed-dev
	@$(BIN)/pytest -m thorough -n auto --maxprocesses 4 --dist worksteal $(TESTS)

test-browser: $(VENV)/.installed-browser
	@$(BIN)/pytest -m browser tests/browser

test-peers: $(VENV)/.installed-dev $(VENV)/peers/.installed
	@PYTHONPATH=$(VENV)/peers $(BIN)/pytest -m peers tests/peers

check: $(VENV)/.installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.installed-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(VENV)/.installed
	@$(BIN)/python .ci/refresh-docs

clean:
	rm -rf $(VENV) build dist .coverage htmlcov .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

# Each stamp says that what pyproject.toml asks for is installed: while it is newer, no pip is called.
$(VENV)/.installed: pyproject.toml | $(BIN)/python
	@echo "Installing tilewise and what it needs into $(VENV) (once; about 160 MB to download) …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml | $(BIN)/python
	@echo "Installing tilewise and the development tools into $(VENV) (once) …"
	@# PyPI's PyTorch for Linux brings gigabytes of CUDA along: the CPU build, if its index can be reached, is enough.
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --timeout 10 --retries 0 \
		--index-url https://download.pytorch.org/whl/cpu torch==$(TORCH) 2> /dev/null || true
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $(VENV)/.installed $@

$(VENV)/.installed-browser: $(VENV)/.installed-dev
	@echo "Installing playwright into $(VENV) (once; about 50 MB to download) …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[browser]'
	@touch $@

# Triton lies beside the environment, not in it: nothing else sees it.
$(VENV)/peers/.installed: $(VENV)/.installed-dev
	@echo "Installing Triton and NVIDIA's headers into $(VENV)/peers (once; about 300 MB to download) …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target $(VENV)/peers triton \
		nvidia-cuda-runtime nvidia-cuda-crt nvidia-cuda-cccl
	@touch $@

$(BIN)/python:
	@python=$$(PYTHON="$(PYTHON)" .ci/find-python) && \
	echo "Making $(VENV) with $$($$python --version) …" && \
	{ "$$python" -m venv $(VENV) || { rm -rf $(VENV); exit 1; }; }
