"""Time and memory of opening a measured trace of a million events.

Kineto's, named as torch.profiler names a pipeline's: each rank's events after those of the one before, as merged files have them; all ranks'
by time; one file per rank, with messages between them. An export of Nsight Systems: ranges with three launches and kernels each. A Chakra
trace: actions with three nodes each. Every run is a process of its own; medians. The file was just written, so it is in the page cache.
"""

import argparse
import pathlib
import shutil
import sys

import bench_tools as tools

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support" / "python"))
import foreign_traces as foreign  # noqa: E402

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


def write_ranks(folder, events):
    """A folder of one file per rank: F, the message that follows it and the receive that the next rank posts for it."""
    folder.mkdir(parents=True, exist_ok=True)
    for rank in range(RANKS):
        lines = []
        for k in range(events // RANKS // 3):
            at = 1000 + 20 * k + 15 * rank
            for name, start, length in ((f"PP:{rank}RECV_F{k}", at - 4, 3), (f"PP:{rank}F{k}", at, 14), (f"PP:{rank}SEND_F{k}", at + 14, 1)):
                lines.append(f'{{"name":"{name}","cat":"user_annotation","ph":"X","ts":{start}.5,"dur":{length},"pid":{rank},"tid":1}}')
        text = f'{{"baseTimeNanoseconds":1700000000000000000,"distributedInfo":{{"rank":{rank}}},"traceEvents":[\n' + ",\n".join(lines) + "\n]}\n"
        (folder / f"rank{rank}.json").write_text(text, encoding="ascii")


def write_nsight(path, events):
    """An export: of seven rows one is a range, three are launches and three kernels."""
    nsight = foreign.Nsight(path)
    for rank in range(RANKS):
        thread = (1 << 56) | ((4000 + rank) << 24) | (4000 + rank)
        for k in range(events // RANKS // 7):
            at = 1_000_000_000 + k * 20_000
            nsight.range(thread, f"PP:{rank}{'FB'[k % 2]}{k // 2}", at - 100_000, at - 85_000)
            for part in range(3):
                nsight.kernel(thread, rank, 7, at - 100_000 + 1000 * part, at + 6000 * part, at + 6000 * part + 5900, f"gemm{part}")
    nsight.db.commit()
    nsight.db.close()


def write_chakra(path, events):
    """Of four nodes one is an action."""
    with open(path, "wb") as file:
        metadata = foreign.data(1, "1.0.0")
        file.write(foreign.varint(len(metadata)) + metadata)
        for k in range(events // 4):
            file.write(foreign.node(4 * k + 2, f"PP:0{'FB'[k % 2]}{k // 2}", 1, 12, True))
            for part in range(3):
                file.write(foreign.node(4 * k + 3 + part, "gemm", 4 * k + 2, 100, False))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--bin", type=pathlib.Path, default=tools.PIPEWRIGHT.parent)
    options = parser.parse_args()
    tools.WORK.mkdir(parents=True, exist_ok=True)
    print(tools.machine())
    print(f"{'trace':<18}{'spans':>10}{'MB':>7}{'import ms':>11}{'CPU ms':>9}{'timeline ms':>13}{'SVG ms':>8}{'SVG kB':>8}{'peak MiB':>10}{'+ timeline':>12}")
    kinds = {
        "rank after rank": ("import_bench.json", lambda path, events: write(path, events, False)),
        "by time": ("import_bench.json", lambda path, events: write(path, events, True)),
        "a file per rank": ("import_bench", write_ranks),
        "Nsight": ("import_bench.sqlite", write_nsight),
        "Chakra": ("import_bench.0.et", write_chakra),
    }
    for name, (file, make) in kinds.items():
        path = tools.WORK / file
        make(path, options.events)
        runs = [tools.last_json(tools.call(options.bin / "import_bench", path)) for _ in range(options.repetitions)]
        middle = {key: tools.median([run[key] for run in runs]) for key in runs[0]}
        size = sum(part.stat().st_size for part in path.iterdir()) if path.is_dir() else path.stat().st_size
        print(f"{name:<18}{middle['spans']:>10,}{size / 1e6:>7.0f}{middle['import_ms']:>11.0f}{middle['import_cpu_ms']:>9.0f}{middle['timeline_ms']:>13.0f}"
              f"{middle['svg_ms']:>8.0f}{middle['svg_bytes'] / 1e3:>8.0f}{middle['peak_mib']:>10}{middle['peak_with_timeline_mib']:>12}")
        shutil.rmtree(path) if path.is_dir() else path.unlink()


if __name__ == "__main__":
    main()
