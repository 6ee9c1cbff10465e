"""python -m ringattn [arguments]: the ringattn command that belongs to the library; without arguments, `ringattn
info`."""
from __future__ import annotations

import os
import shutil
import sys
from typing import Iterator

from . import _library


def _candidates() -> Iterator[str]:
    """Beside the folder of the library: the package's, an installed prefix's or a build's; then whatever is on PATH."""
    for folder in _library.folders():
        if folder:
            yield os.path.join(os.path.dirname(folder), "bin", "ringattn")
            yield os.path.join(os.path.dirname(folder), "ringattn")
    found = shutil.which("ringattn")
    if found:
        yield found


def main() -> None:
    for command in _candidates():
        if os.path.isfile(command) and os.access(command, os.X_OK):
            os.execv(command, [command, *(sys.argv[1:] or ["info"])])
    sys.exit("ringattn: the command was not found; `pip install .` brings it along, `make` builds it")


if __name__ == "__main__":
    main()
