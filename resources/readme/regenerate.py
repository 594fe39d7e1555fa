#!/usr/bin/env python3
"""Runs the commands that the documents show and replaces what they printed; `./dev readme` builds first and calls this.

    regenerate.py [DOCUMENT ...]      without arguments README.md and the guide, the commands and the Python page of resources/docs

In a document:

    <!-- run: COMMAND -->                     runs COMMAND, shows nothing
    <!-- output OPTIONS: COMMAND -->          runs COMMAND; the text up to <!-- end --> becomes a fenced block of
    <!-- end -->                              `$ COMMAND` and what it printed, stdout and stderr as they came
    <!-- cell -->                            a fenced block of Python: all cells of a document run one after the other, as a notebook's;
    <!-- end -->                             what each printed becomes a fenced block after it, before the end
    <!-- picture NAME.png: COMMAND -->        runs COMMAND, which writes NAME.png; resources/readme/NAME.png becomes it

OPTIONS, each may be left out: `lines=N` keeps the first N lines and `tail=N` the last N, with a line `…` for what was
cut; `from=TEXT` and `to=TEXT` (no blanks) begin with the first line whose first word is TEXT and end before the next such line,
with `…` likewise; `status=N` is the exit status to expect (0).

A command that occurs twice, in one document or in two, runs once, so that all places show the same run. Commands run in order,
document by document, in one scratch folder that shows `resources`, `tests` and `.deps` of the repository, with build/bin first in PATH. Host
name and absolute paths are taken out. All documents and pictures are replaced at the end, or none: exit status 1 when a command
fails, 2 when a marker is wrong.
"""

import json
import os
import pathlib
import re
import shlex
import socket
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
MARKER = re.compile(r"<!-- (run|output|picture)([^:\n]*): (.*) -->\n")
CELL = re.compile(r"(<!-- cell -->\n```python\n(.*?)```\n)(?:```text\n.*?```\n)?<!-- end -->\n", re.S)
PYTHON = ROOT / ".deps" / "venv" / "bin" / "python"  # that the package was built for
PICTURES = ROOT / "resources" / "readme"
DOCUMENTS = ("README.md", "resources/docs/guide.md", "resources/docs/commands.md", "resources/docs/python.md")
END = "<!-- end -->\n"
OPTIONS = {"lines", "tail", "from", "to", "status"}
CUT = "…"


def stop(sentence, status):
    """Ends the script; all documents stay as they were."""
    print(f"regenerate: {sentence}", file=sys.stderr)
    raise SystemExit(status)


def options_of(text, command):
    """`lines=3 from=x` to a dict; ends the script on anything else."""
    options = {}
    for word in text.split():
        name, separator, value = word.partition("=")
        if name not in OPTIONS or not separator or (name not in ("from", "to") and not value.isdigit()):
            stop(f"'{word}' is no option of the marker of '{command}'; there are {', '.join(sorted(OPTIONS))}.", 2)
        options[name] = value
    return options


def run(command, folder, expected):
    """What the command prints; ends the script when its exit status is another than expected."""
    print(f"regenerate: {command}", file=sys.stderr)
    environment = {**os.environ, "PATH": f"{ROOT}/build/bin{os.pathsep}{os.environ['PATH']}", "NO_COLOR": "1", "LC_ALL": "C.UTF-8"}
    result = subprocess.run(shlex.split(command), cwd=folder, env=environment, text=True, stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=900)
    if result.returncode != expected:
        stop(f"'{command}' ended with {result.returncode}, not {expected}:\n{result.stdout}", 1)
    return anonymous(result.stdout, folder)


def anonymous(text, folder):
    """Takes out what names this machine."""
    for path in (os.path.realpath(folder), str(folder), str(ROOT)):
        text = text.replace(path + "/", "").replace(path, ".")
    text = re.sub(rf"\bon {re.escape(socket.gethostname())}\b", "on host", text)
    if str(pathlib.Path.home()) + "/" in text:
        stop(f"an output names the home folder:\n{text}", 1)
    return text


def starting(lines, word, begin):
    """Index of the first line from `begin` on whose first word is `word`; the number of lines without one."""
    return next((i for i in range(begin, len(lines)) if lines[i].split()[:1] == [word]), len(lines))


def shortened(text, options, command):
    """The lines the options keep, with CUT where others were."""
    lines = text.strip("\n").split("\n")
    if "from" in options:
        begin = starting(lines, options["from"], 0)
        if begin == len(lines):
            stop(f"no line of '{command}' begins with the word '{options['from']}'.", 2)
        lines = ([CUT] if begin > 0 else []) + lines[begin:]
    if "to" in options:
        end = starting(lines, options["to"], 1)
        if end == len(lines):
            stop(f"no line of '{command}' begins with the word '{options['to']}'.", 2)
        lines = "\n".join(lines[:end]).rstrip().split("\n") + [CUT]
    head = int(options.get("lines", 0 if "tail" in options else len(lines)))
    tail = int(options.get("tail", 0))
    if head + tail < len(lines):
        lines = lines[:head] + [CUT] + (lines[-tail:] if tail else [])
    return "\n".join(line.rstrip() for line in lines)


def picture(name, command, folder):
    """Name and bytes of the picture a command wrote."""
    file = pathlib.Path(folder) / name
    if not re.fullmatch(r"[\w-]+\.png", name) or not file.is_file():
        stop(f"'{command}' wrote no picture {name or '(no name given)'}.", 2)
    return name, file.read_bytes()


def regenerate(text, folder, printed, pictures):
    """The document with every output made anew. `printed`: output by command, of earlier documents too; pictures are added to `pictures`."""
    parts, at = [], 0
    for marker in MARKER.finditer(text):
        if marker.start() < at:
            stop(f"the marker of '{marker[3]}' lies inside another; close that with {END.strip()}.", 2)
        kind, command = marker[1], marker[3]
        options = {} if kind == "picture" else options_of(marker[2], command)
        if command not in printed:
            printed[command] = run(command, folder, int(options.get("status", 0)))
        parts.append(text[at:marker.end()])
        at = marker.end()
        if kind == "picture":
            name, data = picture(marker[2].strip(), command, folder)
            pictures[name] = data
        if kind == "output":
            at = text.find(END, at)
            if at < 0:
                stop(f"the marker of '{command}' has no {END.strip()}.", 2)
            parts.append(f"```text\n$ {command}\n{shortened(printed[command], options, command)}\n```\n")
    return "".join(parts) + text[at:]


def with_cells(text, folder):
    """The document with what its cells print."""
    sources = [match[2] for match in CELL.finditer(text)]
    if not sources:
        return text
    print(f"regenerate: {len(sources)} cells of Python", file=sys.stderr)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "build" / "python")}
    result = subprocess.run([PYTHON, "-B", PICTURES / "cells.py"], cwd=folder, env=environment, text=True, input=json.dumps(sources),
                            capture_output=True, timeout=900)
    if result.returncode != 0:
        stop(f"a cell failed:\n{result.stderr}", 1)
    printed = iter(json.loads(result.stdout))

    def shown(match):
        output = anonymous(next(printed), folder).rstrip("\n")
        block = f"```text\n{output}\n```\n" if output else ""
        return f"{match[1]}{block}<!-- end -->\n"

    return CELL.sub(shown, text)


def main(arguments):
    documents = [pathlib.Path(name) for name in arguments] or [ROOT / name for name in DOCUMENTS]
    load = os.getloadavg()[0]
    if load > 0.3:
        print(f"regenerate: this machine is busy (load {load:.1f}); predicted and measured times will differ for that.", file=sys.stderr)
    printed, pictures = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        for name in ("resources", ".deps", "tests"):
            os.symlink(ROOT / name, pathlib.Path(folder) / name)
        texts = [with_cells(regenerate(document.read_text(encoding="utf-8"), folder, printed, pictures), folder) for document in documents]
    for document, text in zip(documents, texts):
        document.write_text(text, encoding="utf-8")
    for name, data in pictures.items():
        (PICTURES / name).write_bytes(data)


if __name__ == "__main__":
    main(sys.argv[1:])
