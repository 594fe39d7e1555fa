"""Progress of the library's long work, told to a caller's function on any of its threads."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int, int], object]


class Reports:
    """What the library calls as ``report(done, all)``: False ends the work, also where ``progress`` raised, which ``reraise`` then raises."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._raised: list[BaseException] = []

    def __call__(self, done: int, every: int) -> bool:
        try:
            return self._progress is None or self._progress(done, every) is not False
        except BaseException as error:  # the library cannot pass it on through its threads
            self._raised.append(error)
            return False

    def reraise(self) -> None:
        if self._raised:
            raise self._raised[0]
