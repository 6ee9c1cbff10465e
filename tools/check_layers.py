#!/usr/bin/env python3
"""Checks who includes whom, where public functions live, which public structures can grow, and that file names are
unique.

    check_layers.py [ROOT]

The folders of src/ are layers, each with the layers it may use (LAYERS). kernel and transport never see each other.
Programs (cli, bench, examples) and libringattn_mpi use the public headers only; libringattn_cuda
is one with the layers, but none of them needs it. core and schedule are pure: they
include nothing but the part of the C library that touches no file, clock, thread or process.
Prints one line per violation and exits 1 when there is any.
"""

import pathlib
import re
import sys

LAYERS = {
    "base": {"base"},
    "core": {"base", "core"},
    "schedule": {"base", "core", "schedule"},
    "reference": {"base", "core", "reference"},
    "device": {"base", "device"},
    "kernel": {"base", "core", "device", "kernel"},
    "transport": {"base", "core", "device", "transport"},
    "plan": {"base", "core", "schedule", "plan", "kernel/kernel.h", "kernel/backend.h", "device/device.h"},
    "exec": {"base", "core", "schedule", "plan", "device", "kernel", "transport", "exec"},
    "api": {"base", "core", "schedule", "plan", "device", "kernel", "transport", "exec", "reference", "api"},
}

# Code that sees the public headers and its own folder, and nothing else of the tree.
OUTSIDERS = ("cli", "bench", "examples", "src/transport/mpi")

# libringattn_cuda: its folders keep to their layers and may use one another, and nothing else may use them.
CUDA = ("src/api/cuda", "src/device/cuda", "src/kernel/cuda", "src/transport/nccl")

# It calls only what libringattn exports for it (base/internal.h).
HIDDEN_FROM_CUDA = ("src/transport/comm.h", "src/transport/staged.h", "src/transport/link.h", "src/transport/thread.h")

# Headers that only their own layer may include.
PRIVATE = ("src/transport/comm_state.h",)

PURE = ("src/core", "src/schedule")
PURE_HEADERS = {"assert.h", "float.h", "inttypes.h", "limits.h", "math.h", "stdarg.h", "stdbool.h", "stddef.h",
                "stdint.h", "stdio.h", "stdlib.h", "string.h"}

# Headers of optional dependencies, and the only folders of the library that may include them.
FOREIGN = (
    (re.compile(r"mpi\.h|ringattn/mpi\.h"), ("src/transport/mpi", "include/ringattn/mpi.h")),
    (re.compile(r"uc[pst]/.*"), ("src/transport/ucx",)),
    (re.compile(r"nccl\.h"), ("src/transport/nccl", "include/ringattn/cuda.h")),
    (re.compile(r"cuda.*\.h|cooperative_groups.*|ringattn/cuda\.h"),
     (*CUDA, "include/ringattn/cuda.h")),
)

# A public function lives with its object; what spans several layers is in api. By the longest beginning of its name.
HOMES = {
    "ra_status_": "base", "ra_last_error": "base", "ra_fail": "base", "ra_version": "base", "ra_convert": "base",
    "ra_dtype_": "base", "ra_cpu_features": "base",
    "ra_layout_name": "core", "ra_layout_parse": "core", "ra_dilated_": "core", "ra_strategy_": "schedule",
    "ra_kernel_": "kernel", "ra_reference": "reference",
    "ra_comm_": "transport", "ra_run_threads": "transport", "ra_rendezvous_": "transport", "ra_ucx_": "transport",
    "ra_problem_init": "api", "ra_options_init": "api", "ra_tensors_init": "api", "ra_gradients_init": "api",
    "ra_transport_ops_init": "api", "ra_ucx_options_init": "api",
    "ra_plan_": "api", "ra_predict": "api", "ra_layout_": "api", "ra_packed_": "api", "ra_backend_": "api",
    "ra_cuda_": "api/cuda", "ra_comm_create_nccl": "api/cuda", "ra_comm_wrap_nccl": "api/cuda",
}
DECLARED = re.compile(r"\bRA_API\b[^;{]*?\b(ra_\w+)\(")
DEFINED = re.compile(r"^(?!static\b|typedef\b|return\b)[a-z][\w *]*?\b(ra_\w+)\([^;]*$", re.MULTILINE)

SOURCES = {".c", ".h", ".inc", ".cu", ".cuh"}
NAMED_ONCE = SOURCES | {".py", ".sh"}
FOLDERS = ("include", "src", "cli", "bench", "examples", "tests", "tools")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def inside(path, folder):
    return path == folder or path.startswith(folder + "/")


def first_of(path, folders):
    return next((folder for folder in folders if inside(path, folder)), None)


def resolve(root, path, name):
    """The file of the tree that a quoted include means: beside it, or from a root that its part of the tree has."""
    folders = ("src", "tests", "cli") if inside(path, "tests") else ("cli",) if inside(path, "cli") else ("src",)
    for base in (root / path).parent, *(root / folder for folder in folders):
        target = (base / name).resolve()
        if target.is_file() and target.is_relative_to(root):
            return target.relative_to(root).as_posix()
    return None


def check_library(path, target):
    """path, a file of src/ that is no outsider, includes target, a file of the tree."""
    layer = path.split("/")[1]
    if layer not in LAYERS:
        return f"src/{layer} is no layer: give it a line in LAYERS"
    inner = target.removeprefix("src/")
    if inner == target:
        return f"the library may not include {target}"
    if inner.split("/")[0] not in LAYERS[layer] and inner not in LAYERS[layer]:
        return f"{layer} may not use {inner}"
    if first_of(target, OUTSIDERS) or (first_of(target, CUDA) and not first_of(path, CUDA)):
        return f"{inner} belongs to a library of its own"
    if target in PRIVATE and (layer != inner.split("/")[0] or first_of(path, CUDA)):
        return f"{inner} is private to its layer"
    if target in HIDDEN_FROM_CUDA and first_of(path, CUDA):
        return f"{inner} is private to libringattn: transport/host.h has what it exports"
    return None


def check_quoted(root, path, name):
    target = resolve(root, path, name)
    if target is None:
        return f'"{name}" is no file of the tree; public headers are included as <ringattn/...>'
    outsider = first_of(path, OUTSIDERS)
    if outsider:
        return None if inside(target, outsider) else f"{outsider} may use public headers only, not {target}"
    if inside(path, "include"):
        return "public headers include one another as <ringattn/...>"
    return check_library(path, target) if inside(path, "src") else None


def check_bracketed(root, path, name):
    if name.startswith("ringattn/") and not (root / "include" / name).is_file():
        return f"<{name}> is no public header"
    if first_of(path, PURE) and name not in PURE_HEADERS and not name.startswith("ringattn/"):
        return f"{path.split('/')[1]} is pure and may not include <{name}>"
    if not inside(path, "src") and not inside(path, "include"):
        return None
    for pattern, homes in FOREIGN:
        if pattern.fullmatch(name) and not first_of(path, homes):
            return f"<{name}> may be included only in {', '.join(homes)}"
    return None


def tree_files(root):
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.is_file() and path.suffix in NAMED_ONCE:
                yield path.relative_to(root).as_posix()


def include_violations(root, path):
    lines = (root / path).read_text(encoding="utf-8", errors="replace").splitlines()
    for number, line in enumerate(lines, 1):
        match = INCLUDE.match(line)
        if match:
            check = check_quoted if match[1] == '"' else check_bracketed
            wrong = check(root, path, match[2])
            if wrong:
                yield f"{path}:{number}: {wrong}"


def home_of(function):
    """The folder of src/ that must define a public function; None when HOMES does not know it."""
    known = [prefix for prefix in HOMES if function.startswith(prefix)]
    return HOMES[max(known, key=len)] if known else None


def home_violations(root, paths):
    """Public functions that are defined elsewhere than HOMES says or nowhere, or that it does not know."""
    public = {}
    for path in paths:
        if inside(path, "include"):
            text = (root / path).read_text(encoding="utf-8", errors="replace")
            public.update((match[1], path) for match in DECLARED.finditer(text))
    for function, path in sorted(public.items()):
        if home_of(function) is None:
            yield f"{path}: {function} has no home: give it a line in HOMES"
    defined = set()
    for path in paths:
        if not inside(path, "src") or not path.endswith(".c"):
            continue
        for match in DEFINED.finditer((root / path).read_text(encoding="utf-8", errors="replace")):
            defined.add(match[1])
            home = home_of(match[1]) if match[1] in public else None
            if home and not inside(path, f"src/{home}"):
                yield f"{path}: {match[1]} is public and lives in src/{home}"
    for function in sorted(set(public) - defined):
        yield f"{public[function]}: {function} is defined nowhere"


def growth_violations(root, paths):
    """Public structures that neither start with struct_size nor are named as those that stay as they are."""
    for path in paths:
        if not inside(path, "include"):
            continue
        text = (root / path).read_text(encoding="utf-8", errors="replace")
        plain = " ".join(text.replace("\n *", " ").split())
        fixed = set(re.findall(r"ra_\w+", " ".join(re.findall(r"[^.;:]*stay as they are", plain))))
        for name, first in re.findall(r"typedef struct (\w+) \{\s*([^;]*);", text):
            if (first != "size_t struct_size") == (name not in fixed):
                yield f"{path}: {name} must either start with struct_size or be named as one that stays as it is"


def name_violations(paths):
    seen = {}
    for path in paths:
        name = path.rsplit("/", 1)[-1]
        if name == "__init__.py":
            continue
        if name in seen:
            yield f"{path}: {seen[name]} has the same file name"
        seen.setdefault(name, path)


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    paths = list(tree_files(root))
    if not paths:
        sys.exit(f"check_layers: no sources under {root}")
    violations = [*name_violations(paths), *home_violations(root, paths), *growth_violations(root, paths)]
    for path in paths:
        if pathlib.PurePath(path).suffix in SOURCES:
            violations += include_violations(root, path)
    for violation in violations:
        print(violation)
    print(f"check_layers: {len(paths)} files, {len(violations)} violations")
    sys.exit(1 if violations else 0)


if __name__ == "__main__":
    main()
