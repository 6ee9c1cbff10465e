#!/bin/sh
# Runs a compiler, and fails where ptxas says that products of wgmma are put one after the other, or that setmaxnreg is
# ignored (C7508 to C7517): such a kernel is right, and slow.
output=$("$@" 2>&1)
status=$?
[ -z "$output" ] || printf '%s\n' "$output" >&2
case $output in
*C7508* | *C7509* | *C751[0-7]*) exit 1 ;;
esac
exit $status
