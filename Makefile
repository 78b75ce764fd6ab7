# The commands that people use; each does its own set-up. `make help` lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PRESET ?= release
BUILD := build/$(PRESET)
JOBS ?= $(shell nproc)
MODEL ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/braid/models/smollm2-135m-instruct-q4_1.gguf
PROMPT ?= Explain in three sentences why the sky is blue.
SOURCES = $(shell git ls-files 'src/*.h' 'src/*.cc' 'src/*.cu' 'src/*.cuh' 'apps/*.h' 'apps/*.cc' \
	'tests/*.h' 'tests/*.cc' 'tests/*.cu' 'bench/*.h' 'bench/*.cc' 'bench/*.cu' 'examples/*.cc')

.PHONY: help setup configure build model run test bench format lint clean

help:  ## list these commands
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/  make \1\t\2/' | expand -t 18

setup:  ## install the packages that a build needs (asks for root)
	@scripts/setup.sh

configure: setup
	@cmake --preset $(PRESET) > $(or $(TMPDIR),/tmp)/braid-configure.log 2>&1 || \
		{ cat $(or $(TMPDIR),/tmp)/braid-configure.log; exit 1; }

build: configure  ## build everything into build/release (PRESET=debug|asan|tsan for others)
	@echo "building $(BUILD)"
	@cmake --build $(BUILD) -j $(JOBS)

model:  ## fetch the demo model (about 90 MB, once)
	@python3 tools/fetch_model.py

run: configure model  ## build, fetch the demo model and chat with it once
	@echo "building $(BUILD)"
	@cmake --build $(BUILD) -j $(JOBS) --target braid
	@$(BUILD)/bin/braid run -m "$(MODEL)" --chat -p "$(PROMPT)" -n 200

test: build model  ## build and run all tests
	@BRAID_TEST_MODEL="$(MODEL)" ctest --test-dir $(BUILD) -j $(JOBS) --output-on-failure

bench: configure model  ## measure prompt and decode speed of the demo model
	@cmake --build $(BUILD) -j $(JOBS) --target braid
	@$(BUILD)/bin/braid bench -m "$(MODEL)"

format:  ## format all sources
	@clang-format-14 -i $(SOURCES)

lint:  ## check format, includes and clang-tidy's findings
	@scripts/lint.sh

clean:  ## remove all build folders
	@rm -rf build
