#!/bin/sh
# Builds the Python package as a wheel and tries it in an empty environment with numpy alone.
#
#   wheel.sh FOLDER [pip's arguments]      e.g. -C cmake.define.RA_CUDA=OFF
set -eu
folder=$1
shift
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

mkdir -p "$folder"
rm -f "$folder"/ringattn-*.whl
python3 -m pip wheel -q --disable-pip-version-check --no-deps -w "$folder" "$@" "$root"
# Carries libgomp along and names the oldest C library it runs with, where auditwheel is.
if command -v auditwheel >/dev/null; then
    auditwheel repair -w "$work/repaired" "$folder"/ringattn-*.whl
    rm -f "$folder"/ringattn-*.whl
    mv "$work"/repaired/ringattn-*.whl "$folder"
fi
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check "$folder"/ringattn-*.whl
cd "$work"
unset RINGATTN_LIBRARY PYTHONPATH
"$work/venv/bin/python" -m ringattn >info.txt
"$work"/venv/lib/python3*/site-packages/ringattn/bin/ringattn info | cmp - info.txt
"$work/venv/bin/python" -c '
import numpy as np, ringattn
x = np.random.default_rng(0).standard_normal((1, 300, 4, 32)).astype("f4")
one, four = (ringattn.attention(x, x, x, causal=True, ranks=ranks) for ranks in (1, 4))
assert abs(one - four).max() < 1e-5
'
# The import loads no numpy and takes less than 0.2 s: the best of five, since other programs may run.
"$work/venv/bin/python" -c '
import subprocess, sys
program = ("import sys, time; start = time.perf_counter(); import ringattn; "
           "assert not {\"numpy\", \"torch\"} & set(sys.modules); print(time.perf_counter() - start)")
best = min(float(subprocess.check_output([sys.executable, "-c", program])) for _ in range(5))
print(f"import ringattn: {best * 1e3:.0f} ms")
assert best < 0.2
'
"$work/venv/bin/pip" list --disable-pip-version-check
cd "$root"
ls -l "$folder"/ringattn-*.whl
