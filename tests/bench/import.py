"""Time and memory of opening a measured trace: a million spans named as torch.profiler names a pipeline's.

Two files: each rank's events after those of the one before, as merged per-rank files have them, and all ranks' by time. Every run is a
process of its own; medians. The file was just written, so it is in the page cache.
"""

import argparse
import pathlib

import bench_tools as tools

RANKS = 8


def event(rank, k):
    """The k-th action of a rank: forwards and backwards in turn, 20 us apart."""
    return (f'{{"name":"PP:{rank}{"FB"[k % 2]}{k // 2}","cat":"user_annotation","ph":"X","ts":{1000 + k * 20 + rank * 3}.123,"dur":18.5,'
            f'"pid":{rank},"tid":{rank},"args":{{"External id":{k}}}}}')


def write(path, events, by_time):
    """A trace of so many events."""
    each = events // RANKS
    order = ((r, k) for k in range(each) for r in range(RANKS)) if by_time else ((r, k) for r in range(RANKS) for k in range(each))
    with open(path, "w", encoding="ascii") as file:
        file.write('{"schemaVersion":1,"displayTimeUnit":"ms","baseTimeNanoseconds":1700000000000000000,"traceEvents":[\n')
        for number, (rank, k) in enumerate(order):
            file.write((",\n" if number else "") + event(rank, k))
        file.write("\n]}\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--bin", type=pathlib.Path, default=tools.PIPEWRIGHT.parent)
    options = parser.parse_args()
    tools.WORK.mkdir(parents=True, exist_ok=True)
    print(tools.machine())
    print(f"{'trace':<18}{'spans':>10}{'MB':>7}{'import ms':>11}{'CPU ms':>9}{'timeline ms':>13}{'SVG ms':>8}{'SVG kB':>8}{'peak MiB':>10}{'+ timeline':>12}")
    for name, by_time in (("rank after rank", False), ("by time", True)):
        path = tools.WORK / "import_bench.json"
        write(path, options.events, by_time)
        runs = [tools.last_json(tools.call(options.bin / "import_bench", path)) for _ in range(options.repetitions)]
        middle = {key: tools.median([run[key] for run in runs]) for key in runs[0]}
        print(f"{name:<18}{middle['spans']:>10,}{path.stat().st_size / 1e6:>7.0f}{middle['import_ms']:>11.0f}{middle['import_cpu_ms']:>9.0f}{middle['timeline_ms']:>13.0f}"
              f"{middle['svg_ms']:>8.0f}{middle['svg_bytes'] / 1e3:>8.0f}{middle['peak_mib']:>10}{middle['peak_with_timeline_mib']:>12}")
        path.unlink()


if __name__ == "__main__":
    main()
