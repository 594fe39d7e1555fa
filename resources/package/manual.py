#!/usr/bin/env python3
"""Writes the manual page of a program from what it prints for --help, and for `COMMAND --help` of each of its commands.

    manual.py PROGRAM PAGE.1
"""

import datetime
import os
import pathlib
import re
import subprocess
import sys

ENVIRONMENT = {
    "PIPEWRIGHT_TORCH": "The Python environment with torch 2.11 that runs models: its folder, or its site-packages folder. Without it the active "
    "environment and the python3 in PATH are asked. Models are inspected, planned and simulated without one.",
    "PIPEWRIGHT_RESOURCES": "The folder of cluster presets and sample models, instead of the installed one.",
    "NO_COLOR": "Where set, text on a terminal has no colours.",
}
SECTION = re.compile(r"^([A-Z][a-z]+):$")
ENTRY = re.compile(r"^  (\S.*?)(?:\s{2,}(\S.*))?$")


def help_of(program, *command):
    """The help text's lines. What LD_LIBRARY_PATH or a display do to a program is no business of its manual."""
    environment = {**os.environ, "LC_ALL": "C.UTF-8", "COLUMNS": "80"}
    done = subprocess.run([program, *command, "--help"], capture_output=True, text=True, check=False, env=environment, timeout=60)
    if done.returncode != 0:
        sys.exit(f"manual.py: {program} {' '.join(command)} --help failed: {done.stderr.strip()}")
    return done.stdout.splitlines()


def parts(lines):
    """(usage, paragraphs before the first section, [(section, lines)], lines after) of a help text.

    A section lasts to the first empty line; what follows the last one (examples, notes) is kept as it stands.
    """
    usage, about, sections, rest, section = "", [], [], [], None
    for line in lines:
        header = SECTION.match(line)
        if line.startswith("Usage: "):
            usage = line[len("Usage: ") :]
        elif header and header[1] not in ("Example", "Examples"):
            section = (header[1], [])
            sections.append(section)
        elif section is not None and not line.strip():
            section = None
        elif section is not None:
            section[1].append(line)
        elif sections:
            rest.append(line)
        elif line.strip():
            about.append(line)
    return usage, about, sections, rest


def entries(lines):
    """[(what, description)]: two blanks before what, more before the description's further lines."""
    found = []
    for line in lines:
        match = ENTRY.match(line)
        if match:
            found.append([match[1], match[2] or ""])
        elif found:
            found[-1][1] = f"{found[-1][1]} {line.strip()}".strip()
    return found


def escape(text):
    """Text that roff shows as it stands."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + text if text[:1] in ".'" else text


def definitions(found):
    return [line for what, description in found for line in (".TP", f"\\fB{escape(what)}\\fR", escape(description))]


def verbatim(lines):
    text = "\n".join(lines).strip("\n")
    return [".nf", *(escape(line) or "." for line in text.split("\n")), ".fi"] if text.strip() else []


def remainder(lines, macro):
    """What follows the sections, as it stands: examples under a heading, notes."""
    out, block = [], []
    for line in lines:
        if re.fullmatch(r"Examples?:", line):
            out += [*verbatim(block), f"{macro} {'EXAMPLES' if macro == '.SH' else 'Examples'}"]
            block = []
        else:
            block.append(line)
    return out + verbatim(block)


def page(program):
    name = pathlib.Path(program).name
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True, timeout=60).stdout.split()[-1]
    usage, about, sections, rest = parts(help_of(program))
    usage = usage.replace(program, name)
    day = datetime.datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", datetime.datetime.now().timestamp())), datetime.timezone.utc)
    out = [f'.TH {name.upper()} 1 {day:%Y-%m-%d} "Pipewright {version}" "User Commands"', ".SH NAME"]
    summary = " ".join(about).rstrip(".")
    out += [f"{name} \\- {escape(summary)}", ".SH SYNOPSIS", f"\\fB{name}\\fR {escape(usage.removeprefix(name).strip())}"]
    commands = []
    for section, lines in sections:
        found = entries(lines)
        if section == "Subcommands":
            commands = [what for what, _ in found]
            section = "Commands"
        out += [f".SH {section.upper()}", *definitions(found)]
    out += remainder(rest, ".SH")
    for command in commands:
        out += command_page(program, name, command)
    out += [".SH ENVIRONMENT", *definitions(ENVIRONMENT.items())]
    other = "pipewright" if name == "pipewright-gui" else "pipewright-gui"
    out += [".SH SEE ALSO", f"\\fB{escape(other)}\\fR(1)", ""]
    return "\n".join(out)


def command_page(program, name, command):
    usage, about, sections, rest = parts(help_of(program, command))
    out = [f'.SH "{name.upper()} {command.upper()}"', escape(" ".join(about)), ".PP", f"\\fB{escape(usage.replace(program, name))}\\fR"]
    for section, lines in sections:
        out += [f".SS {'Arguments' if section == 'Positionals' else section}", *definitions(entries(lines))]
    return out + remainder(rest, ".SS")


def main(arguments):
    if len(arguments) != 2:
        sys.exit("manual.py: give the program and the page to write.")
    target = pathlib.Path(arguments[1])
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(page(arguments[0]), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
