PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo demo-phoenix test e2e lint clean

# The stamps say which extras are installed, and are renewed when pyproject.toml changes.
$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed-%: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP_INSTALL) -e ".[$*]"
	@touch $@

demo: $(VENV)/.installed-demo
	$(BIN)/rageval-hooks demo

# The same beside a Phoenix server on this machine; Ctrl-C ends it.
demo-phoenix: $(VENV)/.installed-demo-phoenix
	$(BIN)/python -m rageval_hooks.demo.phoenix

test: $(VENV)/.installed-test
	$(BIN)/python -m pytest --ignore tests/e2e -n auto

# Against a real Phoenix server and a real browser.
e2e: $(VENV)/.installed-e2e
	$(BIN)/python -m pytest tests/e2e tests/offline/report/render/test_html.py

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
