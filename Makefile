# The front door over CMake. Every target brings along what it needs; the build folders are all under build/.
#
#   make            the libraries, the command, the examples
#   make demo       four ranks over a long sequence, checked
#   make test       everything that CI runs: AddressSanitizer and fuzzers, ThreadSanitizer, the plain build, Python
#   make check      the plain build's tests alone
#   make sanitize-memory   the tests of the CPU's code under MemorySanitizer
#   make test-gpu   the tests that need a GPU, on a machine that has one; elsewhere they skip themselves
#   make test-python  the Python package's tests, in an environment under build/ (downloads torch, about 3 GB, once)
#   make wheel      the Python package as a wheel, in build/dist
#   make install    PREFIX=/usr/local, DESTDIR honoured
#   make format     the C and CUDA sources, by .clang-format
#   make clean      removes build/
#   make help       this list
#
# CC is taken when a build folder is first made; `make clean` forgets it. JOBS is how many things run at once.

PREFIX ?= /usr/local
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
FUZZ_CC ?= clang

BUILD := build
CTEST := ctest --output-on-failure --no-tests=error -j$(JOBS)
CONFIGURE := cmake -S . -G Ninja --log-level=WARNING
STRICT := -DRA_TESTS=ON -DRA_MPI=ON -DRA_UCX=ON -DRA_WERROR=ON

# The sanitizer builds run the same tests on fewer random problems, but for those that measure (precision, memory, time)
# and, under ThreadSanitizer, those with a single thread. On kernels that randomise addresses widely the shadow
# memory may be taken, so they run without that, where it is allowed.
SANITIZED_SWEEP ?= 40
FIXED_ADDRESSES := $(shell setarch -R true 2>/dev/null && echo setarch -R)
SANITIZED := RINGATTN_SWEEP=$(SANITIZED_SWEEP) $(FIXED_ADDRESSES)
ASAN_SKIPS := 'precision|accuracy|mpi_faults|ucx_faults|test_cli_mpi'
TSAN_SKIPS := 'precision|accuracy|test_cli_mpi'
MSAN_SWEEP ?= 10
MSAN_SKIPS := 'precision|accuracy|test_memory|extremes|traffic|test_cli|install'

.NOTPARALLEL:
.PHONY: all help demo test check test-gpu test-python wheel sanitize-address sanitize-thread sanitize-memory install clean format
.PHONY: setup setup-test

all: setup
	@$(CONFIGURE) -B $(BUILD)
	@cmake --build $(BUILD) -j$(JOBS)

# The list at the top of this file.
help:
	@sed -n '/^#/!q; s/^# \{0,1\}//p' Makefile

demo: setup
	@$(CONFIGURE) -B $(BUILD)
	@cmake --build $(BUILD) -j$(JOBS) --target ringattn
	@sh tools/demo.sh $(BUILD)/ringattn

# Of the Python package's tests those that are fast; `make test-python` runs all of them.
PYTHON_IN_TEST := -m 'not slow'
test: sanitize-address sanitize-thread check
	@$(MAKE) --no-print-directory test-python PYTEST="$(PYTHON_IN_TEST)"

# Compiling for one GPU shows what compiling for all would.
check: setup-test
	@echo "== the plain build"
	@$(CONFIGURE) -B $(BUILD)/check $(STRICT) -DRA_CUDA_ARCHITECTURES=90-real
	@cmake --build $(BUILD)/check -j$(JOBS)
	@$(CTEST) --test-dir $(BUILD)/check

# A machine with a GPU may have no cmocka, and its NCCL inside a Python package.
NCCL_PYTHON := import nvidia.nccl; print(list(nvidia.nccl.__path__)[0])
test-gpu: setup
	@echo "== tests on the GPU"
	@NCCL_HOME=$${NCCL_HOME:-$$(python3 -c '$(NCCL_PYTHON)' 2>/dev/null)} $(CONFIGURE) -B $(BUILD)/gpu -DRA_CUDA=ON
	@cmake --build $(BUILD)/gpu -j$(JOBS)
	@$(CTEST) --test-dir $(BUILD)/gpu -L gpu

# The package in python/ with the libraries of a build of its own.
test-python: setup
	@$(CONFIGURE) -B $(BUILD)/python -DRA_TESTS=OFF -DRA_EXAMPLES=OFF -DRA_CUDA=OFF
	@cmake --build $(BUILD)/python -j$(JOBS)
	@sh tools/test_python.sh $(BUILD)/python $(BUILD)/python-venv $(PYTEST)

# WHEEL_FLAGS: settings of the build, e.g. -C cmake.define.RA_CUDA=OFF
wheel: setup
	@sh tools/wheel.sh $(BUILD)/dist $(WHEEL_FLAGS)

# Fuzzers need clang, so this is the build that clang compiles.
sanitize-address: setup-test
	@echo "== AddressSanitizer, UndefinedBehaviorSanitizer, fuzzers"
	@CC=$(FUZZ_CC) $(CONFIGURE) -B $(BUILD)/asan $(STRICT) -DRA_SANITIZE=address,undefined -DRA_FUZZ=ON
	@cmake --build $(BUILD)/asan -j$(JOBS)
	@$(SANITIZED) $(CTEST) --test-dir $(BUILD)/asan -E $(ASAN_SKIPS)

# MPI's and UCX's libraries are not instrumented, and ThreadSanitizer would report what they do among themselves.
sanitize-thread: setup-test
	@echo "== ThreadSanitizer"
	@$(CONFIGURE) -B $(BUILD)/tsan $(STRICT) -DRA_MPI=OFF -DRA_UCX=OFF -DRA_SANITIZE=thread
	@cmake --build $(BUILD)/tsan -j$(JOBS)
	@$(SANITIZED) $(CTEST) --test-dir $(BUILD)/tsan -E $(TSAN_SKIPS)

# Reads of what nobody wrote. Clang alone has it. Libraries are not instrumented, so MPI stays out; so do tests that put a
# malloc of their own in place (memory), that measure, and that take minutes.
sanitize-memory: setup-test
	@echo "== MemorySanitizer"
	@CC=$(FUZZ_CC) $(CONFIGURE) -B $(BUILD)/msan $(STRICT) -DRA_MPI=OFF -DRA_UCX=OFF -DRA_SANITIZE=memory
	@cmake --build $(BUILD)/msan -j$(JOBS)
	@RINGATTN_SWEEP=$(MSAN_SWEEP) $(FIXED_ADDRESSES) $(CTEST) --test-dir $(BUILD)/msan -E $(MSAN_SKIPS)

install: all
	@cmake --install $(BUILD) --prefix $(PREFIX)

clean:
	@rm -rf $(BUILD)

format:
	@git ls-files '*.c' '*.h' '*.cu' '*.cuh' '*.inc' | xargs clang-format -i

setup:
	@sh tools/setup.sh build

setup-test:
	@sh tools/setup.sh test
