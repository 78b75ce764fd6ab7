# The commands that people use; each does its own set-up. `make help` lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PRESET ?= release
BUILD := build/$(PRESET)
# One job a core, and no more than one for each 1.5 GB of free memory.
JOBS ?= $(shell awk -v n=$$(nproc) '/MemAvailable/ { m = int($$2 / 1500000) } \
	END { print m < 1 ? 1 : m < n ? m : n }' /proc/meminfo)
PREFIX ?= $(if $(filter 0,$(shell id -u)),/usr/local,$(HOME)/.local)
DEMO := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/braid/models/smollm2-135m-instruct-q4_1.gguf
MODEL ?= $(DEMO)
PROMPT ?= Explain in three sentences why the sky is blue.
SCENE ?= a big red circle on the left in the gray background
SETUP ?= yes
PYTHON ?= python3
# Options of CMake's own, as in CMAKE_ARGS='-DCMAKE_CXX_COMPILER=clang++-16 -DBRAID_BENCH=OFF'.
CMAKE_ARGS ?=
cmake_args = $(if $(BRAID_CUDA),-DBRAID_CUDA=$(BRAID_CUDA)) \
	$(if $(CMAKE_CUDA_ARCHITECTURES),'-DCMAKE_CUDA_ARCHITECTURES=$(CMAKE_CUDA_ARCHITECTURES)') $(CMAKE_ARGS)
SOURCES = $(shell git ls-files 'src/*.h' 'src/*.cc' 'src/*.cu' 'src/*.cuh' 'apps/*.h' 'apps/*.cc' \
	'tests/*.h' 'tests/*.cc' 'tests/*.cu' 'bench/*.h' 'bench/*.cc' 'bench/*.cu' 'examples/*.cc' 'python/*.h' 'python/*.cc')

.PHONY: help setup configure program build model run image video test bench install uninstall wheel deb format lint clean

help:  ## list these commands
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/  make \1\t\2/' | expand -t 18
	@echo
	@echo "  BRAID_CUDA=OFF leaves CUDA out, CMAKE_CUDA_ARCHITECTURES=all builds for every GPU, CMAKE_ARGS='-D...'"
	@echo "  goes to CMake, JOBS=N bounds the compilers at once, SETUP=no installs no packages."

setup:  ## install the packages that a build needs (asks for root)
	@if [ "$(SETUP)" != no ]; then scripts/setup.sh; \
		python3 tools/fetch_xgrammar.py > /dev/null || echo "without xgrammar: braid serve has no structured output" >&2; fi

configure: setup
	@mkdir -p $(BUILD)
	@cmake --preset $(PRESET) $(cmake_args) > $(BUILD)/configure.log 2>&1 || { cat $(BUILD)/configure.log; \
		echo "configure: failed; Braid needs what Debian calls $$(scripts/setup.sh list)" >&2; exit 1; }
	@sed -n 's/^-- Braid/Braid/p' $(BUILD)/configure.log

build: configure  ## build everything into build/release (PRESET=debug|asan|tsan for others)
	@cmake --build $(BUILD) -j $(JOBS)

model:  ## fetch the demo model (about 90 MB, once)
	@if [ "$(MODEL)" = "$(DEMO)" ]; then python3 tools/fetch_model.py; fi

program: configure
	@cmake --build $(BUILD) -j $(JOBS) --target braid

run: program model  ## build, fetch the demo model and chat with it once
	@$(BUILD)/bin/braid run -m "$(MODEL)" --chat -p "$(PROMPT)" -n 200

image: program  ## build, and draw a scene with the demo model (SCENE="a small blue square ...")
	@$(BUILD)/bin/braid image -m models/demo-image -p "$(SCENE)" --size 64 --steps 20 --text-tokens 16 -o image.png

video: program  ## build, and make a video with a tiny pipeline of random weights: coloured noise
	@python3 tools/make_tiny_pipeline.py $(BUILD)/tiny_video --kind video
	@$(BUILD)/bin/braid video -m $(BUILD)/tiny_video -p "$(PROMPT)" --size 96x64 --steps 4

test: build model  ## build and run all tests
	@BRAID_TEST_MODEL="$(MODEL)" BRAID_TEST_CLIP="$$(python3 tools/fetch_clip.py)" python3 scripts/run_tests.py $(BUILD) -j $(JOBS)

bench: program model  ## measure prompt and decode speed of the demo model
	@$(BUILD)/bin/braid bench -m "$(MODEL)"

install: configure  ## install below PREFIX (/usr/local for root, else ~/.local)
	@cmake --build $(BUILD) -j $(JOBS) --target installed
	@cmake --install $(BUILD) --prefix "$(PREFIX)" > $(BUILD)/install.log || { tail -5 $(BUILD)/install.log; exit 1; }
	@mv $(BUILD)/install_manifest.txt $(BUILD)/installed_files.txt
	@echo "installed below $(PREFIX): $$(grep -c . $(BUILD)/installed_files.txt) files"

wheel: setup  ## build a wheel of the Python package into build/wheel (PYTHON=python3)
	@PYTHON=$(PYTHON) scripts/make_wheel.sh build/wheel

deb: configure  ## build a Debian package into build/release
	@cmake --build $(BUILD) -j $(JOBS) --target installed
	@cd $(BUILD) && cpack -G DEB > cpack.log || { tail -5 cpack.log; exit 1; }
	@ls $(BUILD)/*.deb

uninstall:  ## remove what `make install` installed last
	@cmake -DMANIFEST=$(BUILD)/installed_files.txt -P $(BUILD)/uninstall.cmake

format:  ## format all sources
	@clang-format-14 -i $(SOURCES)

lint:  ## check format, includes and clang-tidy's findings
	@if [ "$(SETUP)" != no ]; then scripts/setup.sh lint; fi
	@scripts/lint.sh

clean:  ## remove all build folders
	@rm -rf build
