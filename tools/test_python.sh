#!/bin/sh
# Runs tests/python against the libraries of a build folder, in a virtual environment that is made once and kept.
#
#   test_python.sh BUILD ENVIRONMENT [pytest's arguments]
#
# Downloads from PyPI what the tests need, torch among it: about 3 GB, 5 GB on disk; less where PyTorch's own index can be
# reached, which has torch for CPUs alone. Where nothing can be had it says so and skips, unless RINGATTN_MUST_TEST_PYTHON
# is set. RINGATTN_PYTHON_PACKAGES: what to install instead. RINGATTN_PYTHON_EXTRAS: likewise, of what only some tests need;
# where one cannot be installed those tests skip themselves. RINGATTN_PYTHON_QUICK: an environment that is not there yet is
# made without torch, in a folder of its own, and tests that need torch skip themselves.
set -eu
build=$(cd "$1" && pwd)
environment=$2
shift 2
root=$(cd "$(dirname "$0")/.." && pwd)
packages=${RINGATTN_PYTHON_PACKAGES:-numpy pytest torch transformers accelerate}
extras=${RINGATTN_PYTHON_EXTRAS-jax matplotlib mpi4py deepspeed}

# What an environment has in its file `complete`.
complete() { python3 --version 2>&1; echo "$packages; $extras"; }
is_complete() { [ "$(cat "$environment/complete" 2>/dev/null)" = "$(complete)" ]; }

if [ -n "${RINGATTN_PYTHON_QUICK:-}" ] && ! is_complete; then
    echo "test_python.sh: torch's tests are left out; make test-python installs it and has them"
    environment=$environment-small
    packages="numpy pytest"
    extras=
fi

skip() {
    echo "test_python.sh: $1" >&2
    if [ -n "${RINGATTN_MUST_TEST_PYTHON:-}" ]; then exit 1; fi
    echo "test_python.sh: the tests of the Python package are skipped" >&2
    exit 0
}

# torch for CPUs alone, where it can be had quickly: the tests need no GPU.
install_torch() {
    case " $packages " in *" torch "*) ;; *) return 0 ;; esac
    "$environment/bin/pip" install -q --disable-pip-version-check --timeout 10 --retries 0 \
        --index-url https://download.pytorch.org/whl/cpu torch >/dev/null 2>&1 || true
}

if ! is_complete; then
    rm -rf "$environment"
    python3 -m venv "$environment" 2>/dev/null || skip "python3 has no venv (Debian: apt-get install python3-venv)"
    echo "test_python.sh: installing $packages into $environment (kept for the next time)"
    install_torch
    # shellcheck disable=SC2086
    "$environment/bin/pip" install -q --disable-pip-version-check $packages || skip "pip could not install: $packages"
    for extra in $extras; do
        "$environment/bin/pip" install -q --disable-pip-version-check "$extra" ||
            echo "test_python.sh: pip could not install $extra, whose tests are skipped" >&2
    done
    complete >"$environment/complete"
fi

cd "$root"
RINGATTN_LIBRARY=$build/src RINGATTN=$build/ringattn OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} \
    "$environment/bin/python" -m pytest -q "$@" tests/python
