#!/bin/sh
# Makes the environment that the Python package's tests run in, at the first time; says nothing and takes no time when
# it is there. Two that make the same one wait for each other.
#
#   python_environment.sh ENVIRONMENT
#
# Downloads from PyPI what the tests need, torch among it: about 3 GB, 5 GB on disk; less where PyTorch's own index can
# be reached, which has torch for CPUs alone. Fails with a sentence where that cannot be had. What only some tests need
# may be missing: those then skip themselves, and the next time it is tried again; with RINGATTN_MUST_TEST_PYTHON that
# fails too. RINGATTN_PYTHON_PACKAGES, RINGATTN_PYTHON_EXTRAS: what to install instead.
set -eu
environment=$1
packages=${RINGATTN_PYTHON_PACKAGES:-numpy pytest torch transformers accelerate}
extras=${RINGATTN_PYTHON_EXTRAS-jax matplotlib mpi4py deepspeed}

say() { echo "python_environment.sh: $1" >&2; }

# The file `complete` in an environment: python's version, then a line for each package that was asked for.
has_all() {
    [ "$(head -n 1 "$environment/complete" 2>/dev/null)" = "$(python3 --version 2>&1)" ] || return 1
    for package in "$@"; do grep -qx "$package" "$environment/complete" || return 1; done
}

# shellcheck disable=SC2086
has_all $packages $extras && exit 0
mkdir -p "$environment"
if command -v flock >/dev/null; then
    exec 9>"$environment.lock"
    flock -n 9 || {
        say "waiting for another that makes $environment"
        flock 9 || say "no lock on $environment.lock; going on without"
    }
fi

pip_install() { "$environment/bin/pip" install -q --disable-pip-version-check "$@"; }

# uv takes a third of pip's time. It does not know pip's settings: the index and the certificates are handed on, and
# where others are made, or uv does not work, pip is there.
uv_install() {
    [ -x "$environment/bin/uv" ] || return 1
    [ -z "${PIP_CONSTRAINT:-}${PIP_NO_INDEX:-}${PIP_FIND_LINKS:-}${PIP_EXTRA_INDEX_URL:-}" ] || return 1
    certificates=${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}
    [ ! -r "$certificates" ] || export SSL_CERT_FILE="$certificates"
    index=${PIP_INDEX_URL:-$("$environment/bin/pip" config get global.index-url 2>/dev/null || true)}
    UV_DEFAULT_INDEX=${index:-https://pypi.org/simple} "$environment/bin/uv" pip install -q \
        --python "$environment/bin/python" --cache-dir "$environment/uv" "$@"
}

install() { uv_install "$@" 2>"$environment/uv.log" || pip_install "$@"; }

# torch for CPUs alone, where it can be had quickly: the tests need no GPU.
install_torch() {
    case " $packages " in *" torch "*) ;; *) return 0 ;; esac
    cpu=https://download.pytorch.org/whl/cpu
    (PIP_INDEX_URL=$cpu UV_HTTP_TIMEOUT=10 UV_HTTP_RETRIES=0 uv_install torch ||
        pip_install --timeout 10 --retries 0 --index-url $cpu torch) >/dev/null 2>&1 || true
}

# Programs in Python are compiled when they are first imported, once here rather than in each process of a test.
import_all() {
    env -u PYTHONDONTWRITEBYTECODE "$environment/bin/python" -c '
import pytest, torch._dynamo
from transformers import LlamaForCausalLM, Trainer' >/dev/null 2>&1 || true
}

# shellcheck disable=SC2086
if ! has_all $packages; then
    rm -rf "$environment"
    python3 -m venv "$environment" 2>/dev/null || {
        say "python3 has no venv (Debian: apt-get install python3-venv)"
        exit 1
    }
    say "installing $packages into $environment (kept for the next time)"
    pip_install uv >/dev/null 2>&1 || true
    install_torch
    install $packages || {
        say "pip could not install: $packages"
        exit 1
    }
    import_all
    { python3 --version 2>&1; printf '%s\n' $packages; } >"$environment/complete"
fi
# shellcheck disable=SC2086
if ! has_all $extras; then
    for extra in $extras; do
        if install "$extra"; then
            echo "$extra" >>"$environment/complete"
        else
            say "pip could not install $extra; its tests are skipped"
            [ -z "${RINGATTN_MUST_TEST_PYTHON:-}" ] || exit 1
        fi
    done
fi
rm -rf "$environment/uv"
