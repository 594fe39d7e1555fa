"""torch.distributed.pipelining's own dry run of a schedule with messages, `_simulate_comms_compute`: the rival of `execute`."""

import csv
import time

from torch.distributed.pipelining.schedules import _Action, _simulate_comms_compute


class TorchSchedule:
    """A CSV file with messages as torch's runtime reads it."""

    def __init__(self, path):
        with open(path, newline="") as file:
            self.rows = {rank: [_Action.from_str(cell) for cell in row] for rank, row in enumerate(csv.reader(file))}
        actions = [(rank, part) for rank, row in self.rows.items() for action in row for part in action.sub_actions or (action,)]
        self.rank_of = {action.stage_index: rank for rank, action in actions}
        self.compute_actions = sum(action.is_compute_op for _, action in actions)
        self.actions = len(actions)

    def simulate(self):
        """CPU nanoseconds of one dry run, which copies the rows itself."""
        start = time.thread_time_ns()
        done = _simulate_comms_compute(self.rows, self.rank_of.__getitem__, len(self.rank_of))
        elapsed = time.thread_time_ns() - start
        assert sum(action is not None for row in done.values() for action in row) == sum(map(len, self.rows.values()))
        return elapsed

    def refusal(self):
        """The class and the text of the error that ends a dry run; nothing when it ends well."""
        try:
            self.simulate()
        except Exception as error:  # pylint: disable=broad-except; whatever it is, it is the answer
            return f"{type(error).__name__}: {error}"
        return ""
