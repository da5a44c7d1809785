# Two commands do everything on a machine with Python 3.11+, make and pip:
#   make demo    install Hulk into .venv, plan four models on the bundled cluster hulk47, and write the report of the plan
#   make test    the whole test suite, with ruff, mypy --strict, the layering check, and compiled code with indices checked

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check --quiet
WORKERS ?= 4
REPORT := build/demo
# Wherever this is set, each of the many processes here would translate all that it imports anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test lint bench page parsers pictures clean

demo: $(VENV)/core
	mkdir -p build
	$(BIN)/hulk show hulk47
	$(BIN)/hulk plan hulk47 paper4 --out $(REPORT).json
	$(BIN)/hulk report $(REPORT).json -c hulk47 -j paper4 --out $(REPORT).html
	@echo "open $(abspath $(REPORT).html) in a browser"

# All compiled code is tested with every index checked: one out of bounds is an error here, not a wrong number. The checks
# cost next to nothing; tests/test_unchecked.py compares with the code that people run. Compiling, once for all test
# processes, takes about as long as installing what the tests need and the checks do. ALSO=parsers installs the parsers of
# other programs besides; without them, the tests that need them are skipped. Machine code is optimised less than what people
# run: it takes a quarter less time to compile, and tests spend little time in it.
test: export NUMBA_BOUNDSCHECK := 1
test: export NUMBA_OPT := 1
test: $(VENV)/core
	$(BIN)/python tests/compile_first.py & first=$$!; $(MAKE) --no-print-directory lint $(ALSO) && wait $$first
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

lint: $(VENV)/dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

# What reads the files of `hulk export` in its tests, in an environment of its own that sees Hulk's.
parsers: $(VENV)-parsers/done

# Goes on where it was stopped. `make bench OPTIONS=--fresh` begins anew, OPTIONS="--only seeds paper" runs these alone.
bench: $(VENV)/dev
	$(BIN)/python benchmarks/run_all.py $(OPTIONS)

# The page's own files, from its sources in web/ (needs Node; whoever uses Hulk does not). A test compares the two.
page: web/node_modules
	cd web && npm run check && npm run build

web/node_modules: web/package-lock.json
	cd web && npm ci --no-audit --no-fund --silent
	touch $@

# Every picture of the README and the docs, of the present code: the page's (they need Chromium), what was measured against
# what was predicted, the paper's bars. The curves of the network come with its training (docs/network.md).
pictures: $(VENV)/dev
	$(BIN)/python docs/pictures.py
	$(BIN)/python docs/accuracy_picture.py
	$(BIN)/python benchmarks/paper.py

# Modules are compiled when they are imported: most of what comes with torch never is.
$(VENV)/core: pyproject.toml constraints.txt
	test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	$(PIP) install --no-compile --constraint constraints.txt --editable .
	touch $@

# torch comes first and alone: anything that depends on it would otherwise pick a build of several GB.
$(VENV)/dev: $(VENV)/core
	$(PIP) install --no-compile --constraint constraints.txt torch==2.13.0
	$(PIP) install --no-compile --constraint constraints.txt --editable '.[dev]'
	touch $@

$(VENV)-parsers/done: $(VENV)/dev tests/export/requirements.txt tests/export/parsers.txt
	$(BIN)/python -m venv $(VENV)-parsers
	$(BIN)/python -c 'import site; print(site.getsitepackages()[0])' > "$$($(VENV)-parsers/bin/python -c 'import site; print(site.getsitepackages()[0])')/hulk.pth"
	$(VENV)-parsers/bin/pip --disable-pip-version-check --quiet install --no-compile --no-deps -r tests/export/parsers.txt
	$(VENV)-parsers/bin/pip --disable-pip-version-check --quiet install --no-compile -r tests/export/requirements.txt
	touch $@

clean:
	rm -rf $(VENV) $(VENV)-parsers build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
