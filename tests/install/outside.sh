#!/bin/sh
# Installs ringattn into a scratch prefix, moves the prefix, and builds outside programs against it.
#
#   outside.sh install    BUILD PREFIX
#   outside.sh pkgconfig  PREFIX WORK             shared, then --static
#   outside.sh mpi        PREFIX WORK MPIRUN...   pkg-config's ringattn_mpi
#   outside.sh cmake      PREFIX WORK [mpi [MPIRUN_FLAG...]]
#
# CC is the compiler to use.
set -eu
step=$1
shift
source=$(cd "$(dirname "$0")" && pwd)
CC=${CC:-cc}

# The copy under test is the only one to be found.
use_prefix() {
    prefix=$1
    work=$2
    PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name ringattn.pc)")
    libdir=$(dirname "$PKG_CONFIG_PATH")
    export PKG_CONFIG_PATH
    rm -rf "$work"
    mkdir -p "$work"
}

install_and_move() {
    rm -rf "$2" "$2.first"
    cmake --install "$1" --prefix "$2.first" >/dev/null
    mv "$2.first" "$2"
    test -f "$2/include/ringattn/ringattn.h"
    # The command finds its library without help.
    env -u LD_LIBRARY_PATH "$2/bin/ringattn" --version
}

with_pkgconfig() {
    use_prefix "$1" "$2"
    # shellcheck disable=SC2046
    $CC -std=c17 -Wall -Wextra -Werror "$source/consumer.c" -o "$work/shared" $(pkg-config --cflags --libs ringattn) -lm
    test "$(LD_LIBRARY_PATH=$libdir "$work/shared")" = "$(pkg-config --modversion ringattn)"

    # The first folder that the linker looks into has the archive alone.
    mkdir -p "$work/archive"
    cp "$libdir/libringattn.a" "$work/archive"
    # shellcheck disable=SC2046
    $CC -std=c17 "$source/consumer.c" -o "$work/static" -L"$work/archive" \
        $(pkg-config --static --cflags --libs ringattn)
    test "$(env -u LD_LIBRARY_PATH "$work/static")" = "$(pkg-config --modversion ringattn)"

    # The headers are C++ as well.
    for header in ringattn transport rendezvous ucx cuda; do
        test -f "$prefix/include/ringattn/$header.h" || continue
        # shellcheck disable=SC2046
        echo "#include <ringattn/$header.h>" |
            c++ -std=c++11 -Wall -Wextra -Werror -fsyntax-only $(pkg-config --cflags ringattn) -x c++ -
    done
}

with_mpi() {
    use_prefix "$1" "$2"
    shift 2
    # shellcheck disable=SC2046
    $CC -std=c17 "$source/consumer_mpi.c" -o "$work/mpi" $(pkg-config --cflags --libs ringattn_mpi)
    LD_LIBRARY_PATH=$libdir${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} "$@" "$work/mpi"
}

with_cmake() {
    use_prefix "$1" "$2"
    components=${3:-}
    shift $(($# < 3 ? $# : 3))
    flags=$(printf '%s;' "$@")
    CC=$CC cmake -S "$source/project" -B "$work" -DCMAKE_PREFIX_PATH="$prefix" -DCOMPONENTS="$components" \
        -DMPIRUN_FLAGS="$flags" --log-level=WARNING
    cmake --build "$work" >/dev/null
    ctest --test-dir "$work" --output-on-failure --no-tests=error
}

case $step in
install) install_and_move "$@" ;;
pkgconfig) with_pkgconfig "$@" ;;
mpi) with_mpi "$@" ;;
cmake) with_cmake "$@" ;;
*)
    echo "outside.sh: unknown step $step" >&2
    exit 2
    ;;
esac
