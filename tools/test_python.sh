#!/bin/sh
# Runs the Python package's tests in an environment of their own, which is made at the first time and kept.
#
#   test_python.sh BUILD ENVIRONMENT [pytest's arguments]
#
# Downloads from PyPI what the tests need, torch among it: about 3 GB, 5 GB on disk; less where PyTorch's own index can be
# reached, which has torch for CPUs alone. Where that cannot be had it says so and skips, unless RINGATTN_MUST_TEST_PYTHON
# is set, as in CI. What only some tests need may be missing: those then skip themselves.
# RINGATTN_PYTHON_PACKAGES, RINGATTN_PYTHON_EXTRAS: what to install instead.
set -eu
build=$(cd "$1" && pwd)
environment=$2
shift 2
root=$(cd "$(dirname "$0")/.." && pwd)
packages=${RINGATTN_PYTHON_PACKAGES:-numpy pytest torch transformers accelerate}
extras=${RINGATTN_PYTHON_EXTRAS-jax matplotlib mpi4py deepspeed}

skip() {
    echo "test_python.sh: $1" >&2
    [ -z "${RINGATTN_MUST_TEST_PYTHON:-}" ] || exit 1
    echo "test_python.sh: the Python package was not tested" >&2
    exit 0
}

# The file `complete` in an environment: python's version, then a line for each package that was asked for.
has_all() {
    [ "$(head -n 1 "$environment/complete" 2>/dev/null)" = "$(python3 --version 2>&1)" ] || return 1
    for package in "$@"; do grep -qx "$package" "$environment/complete" || return 1; done
}

install() { "$environment/bin/pip" install -q --disable-pip-version-check "$@"; }

# torch for CPUs alone, where it can be had quickly: the tests need no GPU.
install_torch() {
    case " $packages " in *" torch "*) ;; *) return 0 ;; esac
    install --timeout 10 --retries 0 --index-url https://download.pytorch.org/whl/cpu torch >/dev/null 2>&1 || true
}

# shellcheck disable=SC2086
if ! has_all $packages; then
    rm -rf "$environment"
    python3 -m venv "$environment" 2>/dev/null || skip "python3 has no venv (Debian: apt-get install python3-venv)"
    echo "test_python.sh: installing $packages into $environment (kept for the next time)"
    install_torch
    install $packages || skip "pip could not install: $packages"
    { python3 --version 2>&1; printf '%s\n' $packages; } >"$environment/complete"
fi
# shellcheck disable=SC2086
if ! has_all $extras; then
    for extra in $extras; do
        install "$extra" || echo "test_python.sh: pip could not install $extra; its tests are skipped" >&2
        echo "$extra" >>"$environment/complete"
    done
fi

cd "$root"
RINGATTN_LIBRARY=$build/src RINGATTN=$build/ringattn OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} \
    "$environment/bin/python" -m pytest -q "$@" tests/python
