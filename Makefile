# Everything a person or a CI runs. `make demo` and `make test` need Python 3.11+ with venv, and make; nothing else.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
STAMP = $(VENV)/.installed

.PHONY: install demo serve check test bench picture clean

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $(STAMP)

install: $(STAMP)

demo: $(STAMP)
	$(BIN)/watchkeeper demo

serve: $(STAMP)
	$(BIN)/watchkeeper serve

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

test: check
	$(BIN)/python -m tests.services.install
	$(BIN)/python -m pytest

bench: $(STAMP)
	$(BIN)/python -m benchmarks

picture: $(STAMP)
	$(BIN)/python -m tests.proof.picture

clean:
	rm -rf $(VENV) build dist *.egg-info
