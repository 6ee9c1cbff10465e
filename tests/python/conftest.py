"""The package of this tree, unless an installed one is to be tested (RINGATTN_INSTALLED=1); its tests' helpers."""
import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
if not os.environ.get("RINGATTN_INSTALLED"):
    sys.path.insert(0, str(HERE.parents[1] / "python"))
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, [str(HERE.parents[1] / "python"), os.environ.get("PYTHONPATH")]))
