"""The program ``pipewright``: ``python -m pipewright plan model.pt2 ...`` and the command of that name that pip installs."""

import os
import sys

from ._program import environment
from ._pipewright import program


def main() -> None:
    """Becomes the program, with this environment's torch; does not return."""
    path = program()
    os.execve(path, [path, *sys.argv[1:]], environment())


if __name__ == "__main__":
    main()
