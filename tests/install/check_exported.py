"""Compares what a shared library exports with the committed lists, both ways.

    check_exported.py NM LIBRARY LIST...

A symbol that is gone breaks programs; one that slipped out becomes a promise. Either change is made on purpose by
editing a list.
"""

import pathlib
import subprocess
import sys


def main():
    nm, library, *lists = sys.argv[1:]
    listed = " or ".join(lists)
    output = subprocess.run([nm, "-D", "--defined-only", "--format=posix", library], capture_output=True, text=True,
                            check=True).stdout
    exported = {line.split()[0].split("@")[0] for line in output.splitlines() if line.split()[1] != "A"}
    wanted = {name for path in lists for name in pathlib.Path(path).read_text(encoding="utf-8").split()}
    for name in sorted(wanted - exported):
        print(f"{name} is in {listed}, but {library} does not export it")
    for name in sorted(exported - wanted):
        print(f"{name} is exported by {library}, but it is not in {listed}")
    print(f"{len(exported)} symbols exported, {len(wanted)} listed")
    sys.exit(0 if exported and exported == wanted else 1)


if __name__ == "__main__":
    main()
