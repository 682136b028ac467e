# `make demo` and `make test` are all a fresh clone needs: each first makes .venv ready.
PYTHON ?=
# Processes that run the tests.
JOBS ?= 2
VENV := .venv
BIN := $(VENV)/bin
SET_UP := $(VENV)/.set-up
EXTENSION := $(VENV)/.extension
COMPILED := $(VENV)/extension.log
CSRC := $(shell find csrc -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' -o -name '*.h')

.PHONY: demo test lint full ext setup sanitize clang clean

demo: setup
	@$(BIN)/python tutorials/01_run_a_model.py

# The closing line of pytest is what a reader, and CI, looks for.
test: setup
	$(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal -m "not slow and not zoo and not cuda"

full: setup
	$(BIN)/python -m pytest -q --draws all

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	@if [ -x $(BIN)/clang-format ]; then $(BIN)/clang-format --dry-run --Werror $(CSRC); \
	else echo "clang-format is not installed: csrc/ was not checked"; fi

# Incremental: ninja compiles what changed. Leaves the extension out, and says so, where it cannot be built.
ext: $(SET_UP)
	$(BIN)/python setup.py -q build_ext --inplace
	@touch $(EXTENSION)

# Long, the first time above all, when csrc/ is compiled anew: see .ci/sanitize.
sanitize: setup
	@.ci/sanitize

# The other compiler that csrc/ is written for.
clang: setup
	@.ci/clang

setup: $(EXTENSION)
	@:

$(SET_UP): pyproject.toml setup.py .ci/setup
	@PYTHON="$(PYTHON)" .ci/setup $(VENV)
	@touch $@

# Quiet unless it fails; its log is then all there is to look at.
$(EXTENSION): $(SET_UP) $(CSRC)
	@echo 'set-up: compiling the native extension (some minutes the first time)'
	@$(BIN)/python setup.py -q build_ext --inplace >$(COMPILED) || { cat $(COMPILED) >&2; \
	echo 'set-up: the native extension could not be compiled; to go on without it: touch $@' >&2; exit 1; }
	@touch $@

clean:
	rm -rf build dist *.egg-info torch_ort_session/_build_info.py torch_ort_session/_native*.so $(EXTENSION)
