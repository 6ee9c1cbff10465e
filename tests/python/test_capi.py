"""What ctypes takes the interface for is what a C compiler makes of the headers."""
import ctypes
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
import ringattn
from ringattn import _capi, _library, errors

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMPILER = os.environ.get("CC") or shutil.which("cc")
HEADERS = [name for name in ("ringattn", "cuda", "ucx") if (ROOT / f"include/ringattn/{name}.h").exists()]
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="there is no C compiler")


def text_of_headers():
    return "".join((ROOT / f"include/ringattn/{name}.h").read_text() for name in HEADERS)


def structures():
    declared = set(re.findall(r"^\} (ra_\w+);", text_of_headers(), re.M))
    return {name: kind for name, kind in _capi.STRUCTURES.items() if name in declared}


@needs_compiler
def test_offsets(tmp_path):
    lines = [f"#include <ringattn/{name}.h>" for name in HEADERS] + ["#include <stdio.h>", "int main(void) {"]
    expected = []
    for name, kind in structures().items():
        lines.append(f'printf("%zu\\n", sizeof({name}));')
        expected.append((name, "size", ctypes.sizeof(kind)))
        for field, *_ in kind._fields_:
            about = getattr(kind, field)
            lines.append(f'printf("%zu %zu\\n", offsetof({name}, {field}), sizeof((({name} *)0)->{field}));')
            expected.append((name, field, f"{about.offset} {about.size}"))
    enums = {**{f"RA_{name.upper()}": value for name, value in _capi.DTYPES.items()},
             **{f"RA_LAYOUT_{name.upper()}": value for name, value in _capi.LAYOUTS.items()},
             **{f"RA_STRATEGY_{name.upper()}": value for name, value in _capi.STRATEGIES.items()},
             **{f"RA_DILATED_{name.upper()}": value for table in (_capi.DILATED_HEADS, _capi.DILATED_OFFSETS,
                                                                  _capi.DILATED_COMBINES)
                for name, value in table.items()},
             **{f"RA_{name.upper()}": value for name, value in _capi.PASSES.items()}, **_capi.STATUSES}
    for name, value in enums.items():
        lines.append(f'printf("%d\\n", (int){name});')
        expected.append((name, "value", value))
    source = tmp_path / "offsets.c"
    source.write_text("\n".join(lines + ["return 0; }"]))
    subprocess.run([COMPILER, "-std=c17", f"-I{ROOT / 'include'}", source, "-o", tmp_path / "offsets"], check=True)
    printed = subprocess.run([tmp_path / "offsets"], capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(printed) == len(expected)
    for line, (name, field, value) in zip(printed, expected):
        assert line == str(value), (name, field)


def test_every_field_is_there():
    """A field that C has and Python has not would shift nothing at the end of a structure."""
    for name, kind in structures().items():
        body = re.search(r"typedef struct %s \{(.*?)^\} %s;" % (name, name), text_of_headers(), re.S | re.M).group(1)
        body = re.sub(r"/\*.*?\*/", "", body, flags=re.S)
        fields = [word for line in body.split(";") for word in re.findall(
            r"[\s*](\w+)(?:\[\w+\])?\s*(?:,|$)", line.strip())]
        assert fields == [field for field, *_ in kind._fields_], name


def test_every_status_has_a_class():
    listed = dict(re.findall(r"X\((RA_\w+), (\d+),", text_of_headers()))
    assert {name: int(value) for name, value in listed.items()} == _capi.STATUSES
    assert set(errors.BY_STATUS) == set(_capi.STATUSES.values()) - {0}


def test_scale_default():
    problem = _capi.Problem()
    _library.core().ra_problem_init(ctypes.byref(problem))
    assert problem.scale == _capi.SCALE_DEFAULT and problem.struct_size == ctypes.sizeof(_capi.Problem)


def run(*code, **environment):
    return subprocess.run([sys.executable, *code], capture_output=True, text=True, env={**os.environ, **environment})


def test_import_is_light():
    """No torch, no numpy, and little time: processor time, since the machine may be busy."""
    code = ("import sys, time; a = time.process_time(); import ringattn; b = time.process_time(); "
            "print(b - a, *(m for m in ('torch', 'numpy', 'transformers') if m in sys.modules))")
    seconds, *heavy = run("-c", code).stdout.split()
    assert heavy == [] and float(seconds) < 0.2


def test_module_prints_what_the_command_does():
    command = os.environ.get("RINGATTN") or shutil.which("ringattn")
    printed = run("-m", "ringattn")
    assert printed.returncode == 0 and f"version       {ringattn.__version__}\n" in printed.stdout
    assert run("-m", "ringattn", "plan", "--seq", "100", "--heads", "2", "--dim", "8").returncode == 0
    if not command:
        pytest.skip("RINGATTN does not name the command")
    told = subprocess.run([command, "info"], capture_output=True, text=True, check=True).stdout
    assert printed.stdout == told


def test_library_that_is_not_there(tmp_path):
    told = run("-c", "import ringattn; ringattn.Comm.single()", RINGATTN_LIBRARY=str(tmp_path / "none"))
    assert "libringattn was not found" in told.stderr and "pip install" in told.stderr


@needs_compiler
def test_library_of_another_release(tmp_path):
    (tmp_path / "old.c").write_text('const char *ra_version(void) { return "0.1.7"; }')
    subprocess.run([COMPILER, "-shared", "-fPIC", tmp_path / "old.c", "-o", tmp_path / "libringattn.so"], check=True)
    told = run("-c", "import ringattn; ringattn.Comm.single()", RINGATTN_LIBRARY=str(tmp_path))
    assert "the library is version 0.1.7" in told.stderr and "ImportError" in told.stderr


def test_package_and_project_have_one_version():
    assert f"VERSION {ringattn.__version__} " in (ROOT / "CMakeLists.txt").read_text()
