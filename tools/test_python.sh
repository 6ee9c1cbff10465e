#!/bin/sh
# Runs tests/python against the libraries of a build folder, in a virtual environment that is made once and kept.
#
#   test_python.sh BUILD ENVIRONMENT [pytest's arguments]
#
# Downloads from PyPI what the tests need, torch among it: about 3 GB, 5 GB on disk. Where that cannot be had it says so and
# skips, unless RINGATTN_MUST_TEST_PYTHON is set, as in CI. What only some tests need may be missing: those then skip.
# RINGATTN_PYTHON_PACKAGES, RINGATTN_PYTHON_EXTRAS: what to install instead.
set -eu
build=$(cd "$1" && pwd)
environment=$2
shift 2
root=$(cd "$(dirname "$0")/.." && pwd)
packages=${RINGATTN_PYTHON_PACKAGES:-numpy pytest torch transformers accelerate}
extras=${RINGATTN_PYTHON_EXTRAS-jax matplotlib mpi4py deepspeed}
wanted=$(python3 --version 2>&1; echo "$packages; $extras")

skip() {
    echo "test_python.sh: $1" >&2
    if [ -n "${RINGATTN_MUST_TEST_PYTHON:-}" ]; then exit 1; fi
    echo "test_python.sh: the tests of the Python package are skipped" >&2
    exit 0
}

if [ "$(cat "$environment/complete" 2>/dev/null)" != "$wanted" ]; then
    rm -rf "$environment"
    python3 -m venv "$environment" 2>/dev/null || skip "python3 has no venv (Debian: apt-get install python3-venv)"
    echo "test_python.sh: installing $packages into $environment (torch is about 3 GB to download; kept for the next time)"
    # shellcheck disable=SC2086
    "$environment/bin/pip" install -q --disable-pip-version-check $packages || skip "pip could not install: $packages"
    for extra in $extras; do
        "$environment/bin/pip" install -q --disable-pip-version-check "$extra" ||
            echo "test_python.sh: pip could not install $extra; its tests are skipped" >&2
    done
    echo "$wanted" >"$environment/complete"
fi

cd "$root"
RINGATTN_LIBRARY=$build/src RINGATTN=$build/ringattn OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} \
    "$environment/bin/python" -m pytest -q "$@" tests/python
