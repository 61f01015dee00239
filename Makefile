# `make demo` and `make test` do all the set-up they need; a second call does none again.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.knifeedge-installed

.PHONY: setup demo test lint bench docs clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "knifeedge needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

demo: $(STAMP)
	$(BIN)/knifeedge demo

test: $(STAMP)
	$(BIN)/python -m pytest -n auto --maxprocesses=4 --dist=loadfile

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(STAMP)
	for f in data evaluate export gpu loss online train; do echo "== $$f"; $(BIN)/python benchmarks/$$f.py || exit 1; done

docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .hypothesis
