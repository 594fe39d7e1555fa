"""A search on a Ray cluster of two workers; Ray is optional, and is installed for this test by hand: pip install ray."""

import concurrent.futures

import pipewright as pw
import pytest

ray = pytest.importorskip("ray", reason="Ray is not installed in this environment")


class RayExecutor(concurrent.futures.Executor):
    """As in resources/docs/python.md."""

    def submit(self, function, /, *arguments, **named):
        return ray.remote(function).remote(*arguments, **named).future()


def test_a_search_on_a_ray_cluster(gpt):
    options = {"ranks": 2, "microbatches": [2, 4], "schedules": ["1f1b", "gpipe", "zbv"], "cluster": "cpu-workstation"}
    alone = pw.search(gpt, **options)
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        spread = pw.search(gpt, executor=RayExecutor(), **options)
    finally:
        ray.shutdown()
    assert spread.best[0].samples_per_second >= alone.best[0].samples_per_second
    assert pw.simulate(spread.plan()).makespan_ns == spread.best[0].makespan_ns
