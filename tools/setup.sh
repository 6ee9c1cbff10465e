#!/bin/sh
# Installs from Debian's packages what is missing to build (setup.sh build) or to test (setup.sh test) ringattn. Says
# nothing and takes no time when nothing is missing. Without the right to install it prints the line to type and fails;
# what a build can do without (MPI, UCX) it only names, in one line.
set -eu
purpose=${1:-build}

have() { command -v "$1" >/dev/null 2>&1; }

# The compiler and the C library's headers.
can_compile() { echo '#include <stdio.h>' | ${CC:-cc} -x c -fsyntax-only - 2>/dev/null; }

# Debian's mpicc comes without the headers.
can_compile_mpi() { echo '#include <mpi.h>' | mpicc -x c -fsyntax-only - 2>/dev/null; }

# UCX's headers; the library comes with them. It is opened at run time, so compiling is enough to find both.
can_compile_ucx() { echo '#include <ucp/api/ucp.h>' | ${CC:-cc} -x c -fsyntax-only - 2>/dev/null; }

can_fuzz() {
    probe=$(mktemp -d)
    echo 'int LLVMFuzzerTestOneInput(const char *d, unsigned long n) { return d && n > 9; }' >"$probe/fuzz.c"
    result=0
    clang -fsanitize=fuzzer,address,undefined "$probe/fuzz.c" -o "$probe/fuzz" 2>/dev/null || result=1
    rm -rf "$probe"
    return $result
}

# Clang's sanitizers and libFuzzer come in a package of the same major version as the clang that is there.
fuzz_package() {
    if have clang; then
        echo "libclang-rt-$(clang -dumpversion | cut -d. -f1)-dev"
    else
        echo libclang-rt-dev
    fi
}

required_packages() {
    can_compile || echo build-essential
    have cmake || echo cmake
    have ninja || echo ninja-build
    [ "$purpose" = test ] || return 0
    have c++ || echo build-essential
    have python3 || echo python3
    # Without it the Python tests skip themselves, where they may.
    [ -z "${RINGATTN_MUST_TEST_PYTHON:-}" ] || python3 -c 'import ensurepip' 2>/dev/null || echo python3-venv
    have pkg-config || echo pkg-config
    pkg-config --exists cmocka 2>/dev/null || echo libcmocka-dev
    optional_packages
    have clang || echo clang
    have clang-format || echo clang-format
    have clang-tidy || echo clang-tidy
    can_fuzz || fuzz_package
}

# What ranks that are processes need.
optional_packages() {
    have mpirun || echo openmpi-bin
    can_compile_mpi || echo libopenmpi-dev
    can_compile_ucx || echo libucx-dev
}

# One line of packages without repetitions, each followed by a space.
listed() { sort -u | tr '\n' ' '; }

case $purpose in
build | test) ;;
*)
    echo "setup.sh: unknown purpose '$purpose'; use build or test" >&2
    exit 2
    ;;
esac

# How to become root for apt-get; fails where that is not to be had.
find_root() {
    have apt-get || return 1
    as_root=
    [ "$(id -u)" = 0 ] && return 0
    as_root="sudo -n"
    have sudo && sudo -n true 2>/dev/null
}

required=$(required_packages | listed)
optional=$(optional_packages | listed)
[ -n "$required$optional" ] || exit 0

go_without() {
    echo "setup.sh: building without all transports between processes; for them install ${optional}and make again"
    exit 0
}

if ! find_root; then
    [ -n "$required" ] || go_without
    if have apt-get; then
        echo "setup.sh: something is missing. Type this, then try again:" >&2
        echo "    sudo apt-get update && sudo apt-get install --no-install-recommends $required$optional" >&2
    else
        echo "setup.sh: missing: ${required}(names of Debian packages); install their like and try again" >&2
    fi
    exit 1
fi

packages=$(printf '%s\n' $required $optional | listed)

echo "setup.sh: installing $packages"
log=$(mktemp)
apt() { $as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 "$@" </dev/null >"$log" 2>&1; }
# An update that fails may still leave lists that are good enough.
apt update || true
# shellcheck disable=SC2086
if ! apt install -y --no-install-recommends $packages; then
    [ -n "$required" ] || go_without
    cat "$log" >&2
    echo "setup.sh: apt-get could not install: $packages" >&2
    exit 1
fi
rm -f "$log"

required=$(required_packages | listed)
if [ -n "$required" ]; then
    echo "setup.sh: installed, and still not usable: $required" >&2
    exit 1
fi
