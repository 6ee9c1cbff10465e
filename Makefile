# The front door over CMake. Every target brings along what it needs; the build folders are all under build/.
#
#   make            the libraries, the command, the examples
#   make demo       four ranks over a long sequence, checked
#   make test       what CI runs: format, clang-tidy, AddressSanitizer and fuzzers, ThreadSanitizer, the plain build, Python
#   make test-long  what takes longer than CI should: full sweeps under all sanitizers, the analyzer, all of Python's tests
#   make check      the plain build's tests alone
#   make check-format   whether the C and CUDA sources are as `make format` leaves them
#   make tidy       clang-tidy and its analyzer over src/ and cli/
#   make sanitize-address, sanitize-thread, sanitize-memory   the tests under one sanitizer
#   make sanitize-kernels   the CUDA kernels under AddressSanitizer, on the emulated GPU
#   make test-gpu   the tests that need a GPU, on a machine that has one; elsewhere they skip themselves
#   make test-python  the Python package's tests, in an environment that is kept (downloads torch, about 3 GB, once)
#   make wheel      the Python package as a wheel, in build/dist
#   make install    PREFIX=/usr/local, DESTDIR honoured
#   make format     the C and CUDA sources, by .clang-format (clang-format 14)
#   make clean      removes build/
#   make help       this list
#
# CC is taken when a build folder is first made; `make clean` forgets it. JOBS is how many things run at once. CUDA=OFF
# builds without CUDA.

PREFIX ?= /usr/local
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
CUDA ?= AUTO
FUZZ_CC ?= clang

BUILD := build
# Of the Python tests; it stays when build/ goes. In `make test` they do without the packages that take long to install
# or to test, JAX and DeepSpeed.
PYTHON_ENVIRONMENT ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/ringattn/python
QUICK_PYTHON := RINGATTN_PYTHON_EXTRAS='matplotlib mpi4py'
# One more test than there are cores: many wait for deadlines.
CTEST := ctest --output-on-failure --no-tests=error -j$(shell expr $(JOBS) + 1)
CONFIGURE := cmake -S . -G Ninja --log-level=WARNING
STRICT := -DRA_TESTS=ON -DRA_MPI=ON -DRA_UCX=ON -DRA_WERROR=ON
SOURCES := git ls-files '*.c' '*.cc' '*.h' '*.cu' '*.cuh' '*.inc'

# The sanitizer builds run the same tests on fewer random problems, without those that measure (precision, memory, time).
# In `make test` those are left out too that show nothing under a sanitizer which the plain build does not: deadlines and
# signals, choices among plans, numbers of processes between the smallest and the largest but for the sweeps over UCX.
# `make test-long` has them.
# On kernels that randomise addresses widely the shadow memory may be taken, so they run without that, where it is
# allowed.
SANITIZED_SWEEP ?= 20
FUZZ_SECONDS ?= 10
FIXED_ADDRESSES := $(shell setarch -R true 2>/dev/null && echo setarch -R)
SANITIZED = RINGATTN_SWEEP=$(SANITIZED_SWEEP) $(FIXED_ADDRESSES)
MEASURES := precision|accuracy|test_cli_mpi
ASAN_SKIPS ?= $(MEASURES)|test_watch|(mpi|ucx)_faults|test_cli_ends|test_auto|extremes|long_steps|test_(mpi|ucx)_(messages|comm|device|notice)_[147]$$|test_mpi_sweep_[147]$$
TSAN_SKIPS ?= $(MEASURES)|test_watch|extremes|traps|long_steps|test_cli_(ends|results|outputs|refusals|report|request|ucx)
MSAN_SWEEP ?= 10
# Orders of events on the emulated GPU, in `make test-long`.
EMULATOR_SEEDS ?= 2 3 4
MSAN_SKIPS := $(MEASURES)|test_memory|extremes|traffic|test_cli|install

.NOTPARALLEL:
.PHONY: all help demo test test-long check check-format tidy test-gpu test-python test-python-quick wheel install clean format
.PHONY: sanitize-address sanitize-thread sanitize-memory sanitize-kernels setup setup-test

all: setup
	@$(CONFIGURE) -B $(BUILD) -DRA_CUDA=$(CUDA)
	@cmake --build $(BUILD) -j$(JOBS)

# The list at the top of this file.
help:
	@sed -n '/^#/!q; s/^# \{0,1\}//p' Makefile

# A fresh folder is made without CUDA, whose kernels take minutes to compile and are not shown here; `make` adds them.
demo: setup
	@[ -f $(BUILD)/CMakeCache.txt ] || $(CONFIGURE) -B $(BUILD) -DRA_CUDA=OFF
	@cmake --build $(BUILD) -j$(JOBS) --target ringattn
	@sh tools/demo.sh $(BUILD)/ringattn

# The environment of the Python tests is mostly a download, so it is made beside all else; they wait for it, and say why
# where it could not be made. It ends when make does.
test: check-format
	@mkdir -p $(BUILD)
	@if command -v flock >/dev/null; then \
	    $(QUICK_PYTHON) sh tools/python_environment.sh $(PYTHON_ENVIRONMENT) >$(BUILD)/python.log 2>&1 & started=$$!; \
	    trap 'kill $$started 2>/dev/null || true' EXIT; trap 'exit 130' INT TERM; \
	fi; \
	$(MAKE) --no-print-directory tidy TIDY=--checks=-clang-analyzer-* && \
	$(MAKE) --no-print-directory sanitize-address sanitize-thread check test-python-quick

# The tests that CI has no time for, and those that it has on more random problems, for longer, in more ways.
test-long: tidy
	@RINGATTN_TRIALS=3 $(MAKE) --no-print-directory sanitize-address SANITIZED_SWEEP=60 FUZZ_SECONDS=60 \
	    ASAN_SKIPS='$(MEASURES)|(mpi|ucx)_faults'
	@$(MAKE) --no-print-directory sanitize-thread SANITIZED_SWEEP=60 TSAN_SKIPS='$(MEASURES)'
	@$(MAKE) --no-print-directory sanitize-memory
	@RINGATTN_TRIALS=5 $(MAKE) --no-print-directory check
	@RINGATTN_SWEEP=2000 $(CTEST) --test-dir $(BUILD)/check -R 'test_(exact|nonfinite|queued|forward|backward)$$'
	@RINGATTN_SWEEP=500 $(CTEST) --test-dir $(BUILD)/check -R '_sweep_[2347]$$'
	@for seed in $(EMULATOR_SEEDS); do \
	    RINGATTN_EMULATOR_SEED=$$seed $(CTEST) --test-dir $(BUILD)/check -C Long -L emulated || exit; \
	done
	@$(MAKE) --no-print-directory sanitize-kernels
	@$(MAKE) --no-print-directory test-python

# Compiling for one GPU shows what compiling for all would, and without the expensive optimisations what compiling with
# them would.
check: setup-test
	@echo "== the plain build"
	@$(CONFIGURE) -B $(BUILD)/check $(STRICT) -DRA_CUDA=$(CUDA) -DRA_CUDA_ARCHITECTURES=90-real \
	    -DRA_CUDA_QUICK=ON
	@cmake --build $(BUILD)/check -j$(JOBS)
	@$(CTEST) --test-dir $(BUILD)/check

check-format: setup-test
	@echo "== formatting"
	@$(SOURCES) | xargs clang-format --dry-run -Werror

# TIDY: more of clang-tidy's arguments.
tidy: setup-test
	@echo "== clang-tidy"
	@CC=$(FUZZ_CC) $(CONFIGURE) -B $(BUILD)/tidy -DRA_TESTS=OFF -DRA_EXAMPLES=OFF -DRA_CUDA=OFF \
	    -DCMAKE_EXPORT_COMPILE_COMMANDS=ON
	@sh tools/tidy.sh $(BUILD)/tidy $(JOBS) $(TIDY)

# A machine with a GPU may have no cmocka, and its NCCL inside a Python package.
NCCL_PYTHON := import nvidia.nccl; print(list(nvidia.nccl.__path__)[0])
test-gpu: setup
	@echo "== tests on the GPU"
	@NCCL_HOME=$${NCCL_HOME:-$$(python3 -c '$(NCCL_PYTHON)' 2>/dev/null)} $(CONFIGURE) -B $(BUILD)/gpu -DRA_CUDA=ON
	@cmake --build $(BUILD)/gpu -j$(JOBS)
	@$(CTEST) --test-dir $(BUILD)/gpu -L gpu

# The package in python/ with the libraries of a build of its own.
test-python: setup
	@echo "== the Python package"
	@$(CONFIGURE) -B $(BUILD)/python -DRA_TESTS=OFF -DRA_EXAMPLES=OFF -DRA_CUDA=OFF
	@cmake --build $(BUILD)/python -j$(JOBS)
	@sh tools/test_python.sh $(BUILD)/python $(PYTHON_ENVIRONMENT) $(PYTEST)

# The fast ones, with the libraries of the plain build.
test-python-quick: check
	@echo "== the Python package"
	@$(QUICK_PYTHON) sh tools/test_python.sh $(BUILD)/check $(PYTHON_ENVIRONMENT) -m 'not slow'

# WHEEL_FLAGS: settings of the build, e.g. -C cmake.define.RA_CUDA=OFF
wheel: setup
	@sh tools/wheel.sh $(BUILD)/dist $(WHEEL_FLAGS)

# Fuzzers need clang, so this is the build that clang compiles.
sanitize-address: setup-test
	@echo "== AddressSanitizer, UndefinedBehaviorSanitizer, fuzzers"
	@CC=$(FUZZ_CC) $(CONFIGURE) -B $(BUILD)/asan $(STRICT) -DRA_SANITIZE=address,undefined -DRA_FUZZ=ON \
	    -DRA_FUZZ_SECONDS=$(FUZZ_SECONDS)
	@cmake --build $(BUILD)/asan -j$(JOBS)
	@$(SANITIZED) $(CTEST) --test-dir $(BUILD)/asan -E '$(ASAN_SKIPS)'

# MPI's and UCX's libraries are not instrumented, and ThreadSanitizer would report what they do among themselves.
sanitize-thread: setup-test
	@echo "== ThreadSanitizer"
	@$(CONFIGURE) -B $(BUILD)/tsan $(STRICT) -DRA_MPI=OFF -DRA_UCX=OFF -DRA_SANITIZE=thread
	@cmake --build $(BUILD)/tsan -j$(JOBS)
	@$(SANITIZED) $(CTEST) --test-dir $(BUILD)/tsan -E '$(TSAN_SKIPS)'

# Reads of what nobody wrote. Clang alone has it. Libraries are not instrumented, so MPI stays out; so do tests that put a
# malloc of their own in place (memory), that measure, and that take minutes.
sanitize-memory: setup-test
	@echo "== MemorySanitizer"
	@CC=$(FUZZ_CC) $(CONFIGURE) -B $(BUILD)/msan $(STRICT) -DRA_MPI=OFF -DRA_UCX=OFF -DRA_SANITIZE=memory
	@cmake --build $(BUILD)/msan -j$(JOBS)
	@RINGATTN_SWEEP=$(MSAN_SWEEP) $(FIXED_ADDRESSES) $(CTEST) --test-dir $(BUILD)/msan -E '$(MSAN_SKIPS)'

# What compute-sanitizer's memcheck looks for, to the byte: all that kernels read and write is memory of the host's there.
# The stacks of the emulated threads are not known to the sanitizer, which says so.
sanitize-kernels: setup-test
	@echo "== the CUDA kernels under AddressSanitizer"
	@$(CONFIGURE) -B $(BUILD)/kernels -DRA_TESTS=ON -DRA_MPI=OFF -DRA_UCX=OFF -DRA_CUDA=ON \
	    -DRA_CUDA_ARCHITECTURES=90-real -DRA_CUDA_QUICK=ON -DRA_EMULATOR_SANITIZE=address,undefined
	@cmake --build $(BUILD)/kernels -j$(JOBS) --target emulated
	@ASAN_OPTIONS=detect_leaks=0:use_sigaltstack=0 $(FIXED_ADDRESSES) $(CTEST) --test-dir $(BUILD)/kernels -L emulated

install: all
	@cmake --install $(BUILD) --prefix $(PREFIX)

clean:
	@rm -rf $(BUILD)

format:
	@$(SOURCES) | xargs clang-format -i

setup:
	@sh tools/setup.sh build

setup-test:
	@sh tools/setup.sh test
