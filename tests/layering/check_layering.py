#!/usr/bin/env python3
"""Checks the rules of the house that a compiler does not see; prints one line per violation.

    check_layering.py [ROOT]      exit status: 0 kept, 1 violated, 2 wrong call

1. Folders form one chain, app > engine > backends > simulator > schedules: an include reaches its own folder or one to
   the right. Includes of ours are written from the root ("simulator/trace/trace.h"). Tests may include every folder.
2. A heavy library lives in the folders named in LIBRARIES, and in .cpp and .cu files only; a header of PRIVATE_HEADERS may
   include its module's library, and is for that module's own files. Our fmt and Torch (which brings another fmt) never
   meet in one file. An unknown library is refused: it gets a line in LIBRARIES first.
3. Sizes: header 200 lines, source 600 (a warning above 400), test file 500.
4. The top level holds the folders and files of TOP, files and folders with a dot, and nothing else.
5. Every source is built: a CMake file of its folder, or of one above it, names it. A test that is not built passes nothing.
6. A source has the header of its name beside it, but for the families of SEVERAL_SOURCES, whose one header declares all.
7. Some things have one place, named in ONE_PLACE: JSON text is read where its limits are, and the command line writes where
   names are filtered.
8. A source or header that a comment names is one that the file includes, or lies beside it, or is written as a path from the root.
9. A folder of the chain is a room that ROOMS places, at every depth. A folder holds 45 files of code (a warning above 40).
10. No two files define types of one name in one namespace, unless it is anonymous: a program with both links the members of either.
11. No two sources of a folder define a name in an unnamed namespace: they are compiled together, where a call takes the better match.
"""

import os
import re
import subprocess
import sys

CHAIN = ["app", "engine", "backends", "simulator", "schedules"]
BESIDE = ""  # the files beside the rooms; without it they are above all rooms
# Folder: its rooms, from the upper ones, which may include all that follow, to the lowest.
ROOMS = {
    "app": ["python", "cli", "gui"],
    "app/cli": [BESIDE, "options", "text"],
    "app/gui": ["window", "figure", "plan", "cluster", "runs", "candidates", "analysis", "explain", "statistics", "notes", "editor", "model",
                "timeline", "document", "common"],
    "app/gui/model": [BESIDE, "graph", "parts"],
    "app/gui/timeline": [BESIDE, "facts", "overview", "drawing"],
    "app/python": ["pipewright", BESIDE, "torch"],
    "engine": ["planning", "run", "workers", "dynamic", BESIDE, "autograd", "remote", "processes"],
    "engine/planning": [BESIDE, "inputs"],
    "schedules": ["editing", BESIDE],
    "backends": ["cuda", "torch", "resources", "store", "dumps", "traces", "stages", "checkpoints", "messages", "pt2", "host"],
    "backends/messages": ["ucx", "channel", BESIDE],
    "backends/torch": ["autograd", "stage", "program"],
    "backends/traces": [BESIDE, "readers", "recovery", "names", "events"],
    "simulator": ["layout", "runtime", "search", "page", "plan", "order", "partition", "job", "timeline", "history", "report", "costs", "step",
                  "model", "operators", "hang", "trace", "text"],
    "simulator/order": [BESIDE, "proof", "problem"],
}
TOP = CHAIN + ["resources", "tests", "CMakeLists.txt", "README.md", "CONTRIBUTING.md", "LICENSE", "dev", "pyproject.toml"]
SOURCES = (".cpp", ".cu")
HEADERS = (".h", ".h.in", ".cuh", ".hpp")
FREE_TEST_FOLDERS = ("support", "bench", "gpu")  # of several folders: may use every library

JSON_FOLDERS = ("simulator", "backends", "engine", "app")
# Library: (pattern of what stands between the angle brackets, the folders that may include it)
LIBRARIES = {
    "Torch": (r"(torch|ATen|c10|c10d|caffe2)/.*", ("backends", "app/python/torch")),
    "Gloo": (r"gloo/.*", ("backends",)),
    "UCX": (r"(ucp|ucs|uct)/.*", ("backends",)),
    "CUDA": (r"(cuda|cupti|cublas|nvtx|nvml|nvrtc|cooperative_groups)\w*(\.h|/.*)|thrust/.*|cub/.*", ("backends",)),
    "NCCL": (r"nccl\w*\.h", ("backends",)),
    "SQLite": (r"sqlite3\w*\.h|SQLiteCpp/.*", ("backends",)),
    "libzip": (r"zip(conf)?\.h", ("backends",)),
    "zlib": (r"zlib\.h", ("backends",)),
    "Eigen": (r"(unsupported/)?Eigen/.*", JSON_FOLDERS),
    "JSON": (r"nlohmann/(?!json_fwd\.hpp).*|simdjson(\.h|/.*)", JSON_FOLDERS),
    "JSON names": (r"nlohmann/json_fwd\.hpp", JSON_FOLDERS),
    "oneTBB": (r"(oneapi/)?tbb/.*|execution", ("simulator", "backends", "engine", "app")),
    "Qt": (r"Q[A-Z]\w*|Qt\w*/.*", ("app",)),
    "pybind11": (r"pybind11/.*", ("app",)),
    "CLI11": (r"CLI/.*", ("app",)),
    "fmt": (r"fmt/.*", tuple(CHAIN)),
    "GoogleTest": (r"(gtest|gmock)/.*", ()),
    "Google Benchmark": (r"benchmark/.*", ()),
}
# Header: (its library, how the names of the files begin that may include it)
PRIVATE_HEADERS = {
    "app/python/bindings.h": ("pybind11", "app/python/"),
    "app/python/torch/bindings.h": ("pybind11", "app/python/torch/"),
    "app/python/torch/tensors.h": ("pybind11", "app/python/torch/"),
    "app/python/torch/values.h": ("pybind11", "app/python/torch/"),
    "backends/dumps/fields.h": ("JSON", "backends/dumps/"),
    "backends/messages/ucx/worker.h": ("UCX", "backends/messages/ucx/"),
    "backends/traces/readers/window_objects.h": ("JSON", "backends/traces/readers/"),
    "backends/torch/gloo_group.h": ("Torch", "backends/torch/"),
    "backends/torch/autograd/local_pass.h": ("Torch", "backends/torch/"),
    "backends/torch/autograd/nodes.h": ("Torch", "backends/torch/"),
    "backends/torch/stage/history.h": ("Torch", "backends/torch/"),
    "backends/torch/stage/in_flight.h": ("Torch", "backends/torch/"),
    "backends/torch/program/parameter_uses.h": ("Torch", "backends/torch/"),
    "backends/torch/program/steps.h": ("Torch", "backends/torch/"),
    "backends/torch/program/weight_rules.h": ("Torch", "backends/torch/"),
}
# (which files, what they may not hold, the files that may, what to do instead)
ONE_PLACE = (
    (r"(app|engine|backends|simulator|schedules)/.*", r"[Jj]son(_t)?::(parse|accept|sax_parse)\(|QJsonDocument::fromJson\(", ("simulator/text/json_text.cpp", "app/gui/common/json_object.cpp"),
     "JSON text is read with readJson (simulator/text/json_text.h), which has limits"),
    (r"app/cli/.*", r"fmt::print\(|std::(cout|cerr|clog)\b|\bf?(printf|puts|putchar)\(|\bfwrite\(", ("app/cli/text/output.cpp",),
     "the command line writes with print and warn (app/cli/text/output.h), which show control characters instead of obeying them"),
)
# Header: the sources without a header of their own that it is for: alternatives in a table, entries of a module, parts of one widget.
SEVERAL_SOURCES = {
    "app/cli/commands.h": r"app/cli/\w+\.cpp",
    "app/python/bindings.h": r"app/python/\w+\.cpp",
    "app/python/torch/bindings.h": r"app/python/torch/\w+\.cpp",
    "app/gui/candidates/scatter.h": r"app/gui/candidates/scatter_paint\.cpp",
    "app/gui/window/window_parts.h": r"app/gui/window/(docks|explaining|export_choices|menus|opening|pinning)\.cpp",
    "backends/cuda/backend.h": r"backends/cuda/api\.cpp",
    "backends/messages/ucx/backend.h": r"backends/messages/ucx/api\.cpp",
    "backends/torch/backend.h": r"backends/torch/api\.cpp",
    "backends/torch/program/weight_rules.h": r"backends/torch/program/weight_\w+\.cpp",
    "backends/dumps/formats.h": r"backends/dumps/\w+\.cpp",
    "backends/traces/readers/readers.h": r"backends/traces/readers/\w+\.cpp",
    "schedules/families.h": r"schedules/\w+\.cpp",
    "simulator/operators/operators.h": r"simulator/operators/\w+\.cpp",
    "simulator/runtime/runtime.h": r"simulator/runtime/\w+\.cpp",
}
FOREIGN_FILES = ("cuda.h", "x.cpp")  # that comments name
LIGHT_LIBRARIES = ("JSON names", "Qt")  # allowed in headers: forward declarations only, and what a widget derives from
TEST_LIBRARIES = ("GoogleTest", "Google Benchmark")  # every test file, its headers included
SYSTEM = re.compile(r"[\w.]+|(sys|net|netinet|arpa|linux|asm|bits)/[\w./]+")

COMMENT = re.compile(r"//.*")
NAMED_FILE = re.compile(r"(?<![\w./<-])((?:[\w-]+/)*[\w-]+\.(?:h|cpp|cu|cuh))\b(?!>)")
COMMENT_OR_STRING = re.compile(r'R"([^\s()\\]{0,16})\(.*?\)\1"|/\*.*?\*/', re.S)
INCLUDE = re.compile(r"^[ \t]*#[ \t]*(?:include|import|include_next)\b[ \t]*(.*)$", re.M)
NAMESPACE = re.compile(r"(?:inline )?namespace ?([\w:]*) ?\{")
TYPE = re.compile(r"(?:struct|class) (?:\[\[[\w:]+\]\] )?(\w+)(?: final)?(?: :[^;{]*)? ?\{")
LOCAL = re.compile(r"(?!(?:using|namespace|return|enum|friend|class|struct|union|static_assert|template)\b)[\w:][\w:<>,&*\[\]() ]*?[ &*](\w+)(?:\(|\[| =|\{|;)")
TARGET = re.compile(r'<([^>]+)>|"([^"]+)"')


def main(arguments):
    if len(arguments) > 1:
        print("check_layering: call it with one folder, the repository's root.", file=sys.stderr)
        return 2
    root = arguments[0] if arguments else os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
    violations, warnings, count = check(root)
    for line in warnings:
        print(f"warning: {line}")
    for line in violations:
        print(f"violation: {line}")
    print(f"{count} files, {len(violations)} violations, {len(warnings)} warnings")
    return 1 if violations else 0


def check(root):
    """The tree's (violations, warnings, number of files looked at); an empty tree is a violation, never a silent pass."""
    violations, warnings = list(top_level(root)), []
    count = 0
    files_in = {}  # folder: how many
    defined = {}  # type: the file that defines it
    local = {}  # (folder, name in an unnamed namespace): the source that defines it
    for path in code_files(root):
        count += 1
        files_in[os.path.dirname(path)] = files_in.get(os.path.dirname(path), 0) + 1
        with open(os.path.join(root, path), encoding="utf-8") as file:
            text = file.read()
        violations += size(path, text.count("\n"), warnings)
        if path.endswith(SOURCES) and not is_built(root, path):
            violations.append(f"{path}: no CMake file names it, so it is never built")
        if path.endswith(SOURCES) and not path.startswith("tests/") and not has_header(root, path, text):
            violations.append(f"{path}: has no header of its name, and is of no family in SEVERAL_SOURCES")
        if not path.endswith(".py"):
            violations += includes(path, text)
            violations += misplaced(path, text)
            violations += lost_names(root, path, text)
        if path.split("/")[0] in CHAIN and not path.endswith(".py"):
            violations += defined_twice(path, text, defined)
        if path.startswith((*(folder + "/" for folder in CHAIN), "tests/app/")) and path.endswith(".cpp"):
            violations += local_twice(path, text, local)
    for folder, files in files_in.items():
        if folder.split("/")[0] in CHAIN and not is_placed(folder):
            violations.append(f"{folder}: a room that ROOMS does not place")
        violations += fullness(folder, files, warnings)
    for folder in CHAIN[1:]:
        if not any(name.endswith(SOURCES) for _, _, names in os.walk(os.path.join(root, folder)) for name in names):
            violations.append(f"{folder}: holds no source file; is this the repository's root?")
    return violations, warnings, count


def is_placed(folder):
    """Whether ROOMS lists a folder of the chain, and those above it, in the folders that they lie in."""
    parts = folder.split("/")
    return all(parts[depth] in ROOMS.get("/".join(parts[:depth]), []) for depth in range(1, len(parts)))


def is_built(root, path):
    """Whether a CMake file beside a source, or above it, names it."""
    name = re.compile(r"(?<![\w.])" + re.escape(os.path.basename(path)) + r"(?![\w.])")
    folder = os.path.dirname(path)
    while True:
        for build in listing(os.path.join(root, folder)):
            if build == "CMakeLists.txt" or build.endswith(".cmake"):
                with open(os.path.join(root, folder, build), encoding="utf-8") as file:
                    if name.search(file.read()):
                        return True
        if not folder:
            return False
        folder = os.path.dirname(folder)


def has_header(root, path, text):
    """Whether a source has a header beside it, holds a `main`, or includes the header of a family that it is of."""
    stem = os.path.splitext(path)[0]
    if any(os.path.exists(os.path.join(root, stem + ending)) for ending in HEADERS) or re.search(r"^int main\(", text, re.M):
        return True
    return any(re.fullmatch(pattern, path) and f'"{header}"' in text for header, pattern in SEVERAL_SOURCES.items())


def rooms_of(path):
    """(folder, place of the room in ROOMS) for each folder with rooms that a file lies in; for a file beside the rooms BESIDE's or -1."""
    parts = path.split("/")
    for depth in range(1, len(parts)):
        folder = "/".join(parts[:depth])
        if folder in ROOMS:
            rooms = ROOMS[folder]
            room = parts[depth] if parts[depth] in rooms else BESIDE
            yield folder, rooms.index(room) if room in rooms else -1


def listing(folder):
    return sorted(os.listdir(folder)) if os.path.isdir(folder) else []


def code_files(root):
    """Paths from the root, in order, of the C++ and Python files of all folders."""
    for top in CHAIN + ["resources", "tests"]:
        for folder, folders, names in os.walk(os.path.join(root, top)):
            folders[:] = sorted(name for name in folders if not name.startswith(".") and name != "__pycache__")
            for name in sorted(names):
                if name.endswith(SOURCES + HEADERS + (".py",)):
                    yield os.path.relpath(os.path.join(folder, name), root).replace(os.sep, "/")


def top_level(root):
    """What git tracks, so that a file lying around harms nobody; without commits or git, the folder itself."""
    listed = subprocess.run(["git", "ls-files"], cwd=root, capture_output=True, text=True, check=False)
    entries = {line.split("/", 1)[0].strip('"') for line in listed.stdout.splitlines()}
    if not entries:
        entries = {name for name in os.listdir(root) if not re.fullmatch(r"build(-.*)?", name)}
    for entry in sorted(entries):
        if entry not in TOP and not entry.startswith("."):
            yield f"{entry}: not one of the top level's fixed names"


def size(path, lines, warnings):
    if path.startswith("tests/"):
        limit, kind = 500, "test file"
    elif path.endswith(HEADERS):
        limit, kind = 200, "header"
    else:
        limit, kind = 600, "source"
        if 400 < lines <= limit:
            warnings.append(f"{path}: {lines} lines, a source should have at most 400")
    if lines > limit:
        yield f"{path}: {lines} lines, a {kind} has at most {limit}"


def fullness(folder, files, warnings):
    if files > 45:
        yield f"{folder}: {files} files, a folder has at most 45; give an idea of it a room"
    elif files > 40:
        warnings.append(f"{folder}: {files} files, a folder should have at most 40")


def includes(path, text):
    """Rules 1 and 2 for one C++ file."""
    top, _, rest = path.partition("/")
    is_test = top == "tests"
    folder = rest.split("/")[0] if is_test else top
    libraries = {}
    for line, kind, target in include_lines(text):
        where = f"{path}:{line}"
        if kind == "macro":
            yield f"{where}: include a file by name, not through a macro: {target}"
        elif kind == "ours":
            yield from reach(where, folder, is_test, target)
            yield from reach_room(where, path, target)
            library, prefix = PRIVATE_HEADERS.get(target, ("", ""))
            if not path.startswith(prefix):
                yield f'{where}: "{target}" includes {library} and is for files named {prefix}* only'
        else:
            library = library_of(target)
            if library is None:
                if target.split("/")[0] in CHAIN + ["tests", "resources"]:
                    yield f'{where}: write "{target}" in quotes, it is ours'
                elif not SYSTEM.fullmatch(target):
                    yield f"{where}: <{target}> belongs to no library that check_layering.py knows"
                continue
            libraries[library] = line
            yield from placement(where, path, folder, is_test, library)
    if "Torch" in libraries and "fmt" in libraries:
        yield f"{path}:{libraries['fmt']}: fmt in a file that includes Torch, which brings another fmt"


def misplaced(path, text):
    """Rule 7 for one C++ file."""
    bare = re.sub(r"//[^\n]*", "", text)
    for files, pattern, allowed, instead in ONE_PLACE:
        if path in allowed or not re.fullmatch(files, path):
            continue
        for match in re.finditer(pattern, bare):
            yield f"{path}:{bare.count(chr(10), 0, match.start()) + 1}: {instead}"


def lost_names(root, path, text):
    """Rule 8 for one C++ file."""
    near = {os.path.basename(target) for _, kind, target in include_lines(text) if kind == "ours"}
    near.update(listing(os.path.join(root, os.path.dirname(path))), FOREIGN_FILES)
    for number, line in enumerate(text.split("\n"), 1):
        comment = COMMENT.search(line)
        for name in NAMED_FILE.findall(comment.group(0)) if comment else ():
            if name not in near and not ("/" in name and os.path.exists(os.path.join(root, name))):
                yield f"{path}:{number}: {name} is not beside this file, nor included; write its path from the root, or its name as it is now"


def defined_twice(path, text, defined):
    """Rule 10 for one C++ file; `defined` holds the types of those before it, and takes its own."""
    inside = []
    for number, line in enumerate(text.split("\n"), 1):
        if entered := NAMESPACE.match(line):
            # Ours begin anew: the blocks of other namespaces before them, which only declare, close with a bare brace.
            inside = [entered.group(1)] if entered.group(1).split("::")[0] == "pw" else [*inside, entered.group(1)]
        elif line.startswith("}  // namespace") and inside:
            inside.pop()
        elif (named := TYPE.match(line)) and "" not in inside:
            name = "::".join([*inside, named.group(1)])
            if defined.setdefault(name, path) != path:
                yield f"{path}:{number}: {name} is a type of {defined[name]}, too; name one of them differently"


def local_twice(path, text, local):
    """Rule 11 for one C++ file; `local` holds the names of those before it, and takes its own. Overloads in one source are one name."""
    unnamed = False
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith(("namespace {", "}  // namespace")):
            unnamed = line == "namespace {"
        elif unnamed and (named := TYPE.match(line) or LOCAL.match(line)):
            name = named.group(1)
            if local.setdefault((os.path.dirname(path), name), path) != path:
                yield f"{path}:{number}: {local[os.path.dirname(path), name]} has a local {name}, too; share one, or name them differently"


def include_lines(text):
    """(line, "ours" | "angle" | "macro", target) of every include outside comments and raw strings."""

    def blank(match):
        return "\n" * match.group(0).count("\n")

    bare = COMMENT_OR_STRING.sub(blank, re.sub(r"//[^\n\"]*$", "", text, flags=re.M))
    for match in INCLUDE.finditer(bare):
        line = bare.count("\n", 0, match.start()) + 1
        target = TARGET.match(match.group(1))
        if target is None:
            yield line, "macro", match.group(1).strip()
        elif target.group(2) and library_of(target.group(2)):
            yield line, "angle", target.group(2)  # a library in quotes is a library
        else:
            yield (line, "ours", target.group(2)) if target.group(2) else (line, "angle", target.group(1))


def library_of(target):
    for name, (pattern, _) in LIBRARIES.items():
        if re.fullmatch(pattern, target):
            return name
    return None


def reach(where, folder, is_test, target):
    reached = target.split("/")[0]
    if ".." in target.split("/") or "/" not in target or reached not in CHAIN + ["tests"]:
        yield f'{where}: "{target}" is not written from the root ("folder/file.h")'
    elif is_test:
        return
    elif reached == "tests":
        yield f'{where}: {folder} includes a test\'s file, "{target}"'
    elif folder in CHAIN and CHAIN.index(reached) < CHAIN.index(folder):
        yield f'{where}: {folder} stands to the right of {reached} and may not include "{target}"'


def reach_room(where, path, target):
    own = dict(rooms_of(path))
    for folder, place in rooms_of(target):
        if folder in own and place < own[folder]:
            room = "/".join([folder, ROOMS[folder][own[folder]]]).rstrip("/")
            yield f'{where}: {room} stands below the room of "{target}" and may not include it'


def placement(where, path, folder, is_test, library):
    if library in TEST_LIBRARIES:
        if not is_test:
            yield f"{where}: {library} outside tests"
        return
    allowed = LIBRARIES[library][1]
    path = where.rpartition(":")[0]
    if folder not in allowed and not path.startswith(tuple(name + "/" for name in allowed)) and not (is_test and folder in FREE_TEST_FOLDERS):
        yield f"{where}: {library} in {folder}; it lives in {', '.join(allowed)}"
    is_private = PRIVATE_HEADERS.get(path, ("",))[0] == library
    if not path.endswith(SOURCES) and library not in LIGHT_LIBRARIES and not is_private:
        yield f"{where}: {library} in a header; it belongs into .cpp and .cu files"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
