# The commands of the project. A fresh Debian or Ubuntu machine needs only git and make: cmake/bootstrap.sh installs the
# rest. TANDEM_CUDA=OFF builds without the Hopper kernels, ON insists on them, AUTO takes them where an nvcc can be had.
BUILD ?= build
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
TANDEM_CUDA ?= AUTO
EXAMPLE := examples/data/smollm2_layer18.safetensors
export TANDEM_CUDA

.PHONY: all build configure run test test-long run-tests bench format format-check tidy install clean help

all: build

help: ## List the commands
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 22

configure:
	@cmake/bootstrap.sh
	@cmake -S . -B $(BUILD) -G Ninja -DCMAKE_BUILD_TYPE=Release -DTANDEM_CUDA=$(TANDEM_CUDA) $(CMAKE_FLAGS)

build: configure ## Build everything; the program is build/bin/tandem
	@cmake --build $(BUILD) --parallel $(JOBS)

run: configure ## Build the program and run attention on the example input, checked against float64
	@cmake --build $(BUILD) --parallel $(JOBS) --target bin/tandem
	$(BUILD)/bin/tandem run --input $(EXAMPLE) --causal --explain --check

test: SELECTED = -LE long
test: run-tests ## Build everything and run the tests; skipped ones are listed with their reasons

test-long: SELECTED = -L long
test-long: run-tests ## The tests that take minutes: faults planted in the kernels, every emulated 8-bit kernel

run-tests: build
	@ctest --test-dir $(BUILD) --output-on-failure --parallel $(JOBS) --timeout 600 $(SELECTED) \
	  --test-output-size-passed 1000000 --output-junit tests.xml $(CTEST_FLAGS); \
	status=$$?; python3 tests/project/skipped.py $(BUILD)/tests.xml; exit $$status

bench: configure ## Build the program and time it on the paper's grid (BENCH_FLAGS="--help" says what can be asked)
	@cmake --build $(BUILD) --parallel $(JOBS) --target bin/tandem
	$(BUILD)/bin/tandem bench $(BENCH_FLAGS)

format: ## Lay out all C++ and CUDA sources with clang-format
	@cmake/sources.sh | xargs -r clang-format -i

format-check: ## Fail if a source isn't laid out as clang-format would
	@cmake/sources.sh | xargs -r clang-format --dry-run -Werror

tidy: configure ## Run clang-tidy on the host sources
	@BUILD=$(BUILD) JOBS=$(JOBS) cmake/tidy.sh

install: build ## Install the library, its headers and the program (CMAKE_FLAGS=-DCMAKE_INSTALL_PREFIX=... says where)
	@cmake --install $(BUILD)

clean: ## Remove the build folder
	@rm -rf $(BUILD)
