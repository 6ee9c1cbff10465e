#!/bin/sh
# Runs the Python package's tests in an environment of their own, which is made at the first time and kept
# (python_environment.sh).
#
#   test_python.sh BUILD ENVIRONMENT [pytest's arguments]
#
# Where the environment cannot be had it says so and skips, unless RINGATTN_MUST_TEST_PYTHON is set, as in CI.
set -eu
build=$(cd "$1" && pwd)
environment=$2
shift 2
root=$(cd "$(dirname "$0")/.." && pwd)

if ! sh "$root/tools/python_environment.sh" "$environment"; then
    [ -z "${RINGATTN_MUST_TEST_PYTHON:-}" ] || exit 1
    echo "test_python.sh: the Python package was not tested" >&2
    exit 0
fi

cd "$root"
export RINGATTN_LIBRARY="$build/src" RINGATTN="$build/ringattn" OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"

# The tests that start processes wait for them most of the time, so they run beside the others.
launching=$(printf "tests/python/test_%s.py " launched examples docs mpi)
printed=$(mktemp)
started=
trap 'rm -f "$printed"; [ -z "$started" ] || kill $started 2>/dev/null || true' EXIT
trap 'exit 130' INT TERM
# shellcheck disable=SC2086
"$environment/bin/python" -m pytest -q "$@" $launching >"$printed" 2>&1 &
started=$!
own=0
# shellcheck disable=SC2046,SC2086
"$environment/bin/python" -m pytest -q "$@" $(printf -- '--ignore=%s ' $launching) tests/python || own=$?
launched=0
wait $started || launched=$?
started=
cat "$printed"
# pytest's 5: none of the tests that were asked for are among these.
[ "$own" != 5 ] || [ "$launched" != 5 ] || exit 5
[ "$own" = 5 ] || [ "$own" = 0 ] || exit "$own"
[ "$launched" = 5 ] || [ "$launched" = 0 ] || exit "$launched"
