"""Writes small traces in the formats of tools that cannot run here, from their documented schemas: the files in tests/data/foreign.

    foreign_traces.py DIR

All hold the same two steps of 1F1B: 2 ranks, 4 microbatches, F 1 ms and B 2 ms on the device, messages that take no time, and an optimizer
of 0.5 ms after the last backward. Each step takes (4 + 2 - 1) (1 + 2) = 15 ms from the first forward to the last backward.

- nsight.sqlite: what `nsys export --type sqlite` writes of one node with both processes (tables and columns of the "SQLite Schema Reference"
  in Nsight Systems' user guide). Megatron-LM's names; the program runs ahead of the device, and a backward's kernels are launched by
  autograd's thread.
- chakra.0.et, chakra.1.et: what chakra_converter writes of PyTorch (mlcommons/chakra, schema/protobuf/et_def.proto): nodes with exclusive
  durations and no starts, called by each other through control dependencies.
"""

import pathlib
import sqlite3
import sys

RANKS, MICROBATCHES, STEPS = 2, 4, 2
FORWARD, BACKWARD, OPTIMIZER = 1_000_000, 2_000_000, 500_000
STEP = 20_000_000


def rows():
    """Per rank: (kind, microbatch) in the order of 1F1B."""
    result = []
    for rank in range(RANKS):
        warmup = RANKS - rank - 1
        row = [("F", m) for m in range(warmup)]
        for m in range(MICROBATCHES - warmup):
            row += [("F", warmup + m), ("B", m)]
        result.append(row + [("B", m) for m in range(MICROBATCHES - warmup, MICROBATCHES)])
    return result


def times():
    """Per rank: (kind, microbatch, start, end) of one step, from 0."""
    order, place, busy, done, result = rows(), [0] * RANKS, [0] * RANKS, {}, [[] for _ in range(RANKS)]
    while any(place[rank] < len(order[rank]) for rank in range(RANKS)):
        for rank in range(RANKS):
            if place[rank] == len(order[rank]):
                continue
            kind, m = order[rank][place[rank]]
            source = rank - 1 if kind == "F" else rank + 1
            if 0 <= source < RANKS and (source, kind, m) not in done:
                continue
            start = max(busy[rank], done.get((source, kind, m), 0))
            busy[rank] = done[rank, kind, m] = start + (FORWARD if kind == "F" else BACKWARD)
            result[rank].append((kind, m, start, busy[rank]))
            place[rank] += 1
    return result


SCHEMA = """
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE PROCESSES (globalPid INTEGER, pid INTEGER, name TEXT);
CREATE TABLE ThreadNames (nameId INTEGER NOT NULL REFERENCES StringIds(id), priority INTEGER, globalTid INTEGER);
CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT, localTime TEXT);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER, category INTEGER,
  color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER REFERENCES StringIds(id), domainId INTEGER,
  uint64Value INTEGER, int64Value INTEGER, doubleValue REAL, uint32Value INTEGER, int32Value INTEGER, floatValue REAL,
  jsonTextId INTEGER, jsonText TEXT);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL, globalTid INTEGER,
  correlationId INTEGER, nameId INTEGER NOT NULL REFERENCES StringIds(id), returnValue INTEGER NOT NULL, callchainId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL,
  streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER NOT NULL REFERENCES StringIds(id),
  shortName INTEGER NOT NULL REFERENCES StringIds(id), mangledName INTEGER REFERENCES StringIds(id), launchType INTEGER,
  cacheConfig INTEGER, registersPerThread INTEGER NOT NULL, gridX INTEGER NOT NULL, gridY INTEGER NOT NULL, gridZ INTEGER NOT NULL,
  blockX INTEGER NOT NULL, blockY INTEGER NOT NULL, blockZ INTEGER NOT NULL, staticSharedMemory INTEGER NOT NULL,
  dynamicSharedMemory INTEGER NOT NULL, localMemoryPerThread INTEGER NOT NULL, localMemoryTotal INTEGER NOT NULL, gridId INTEGER NOT NULL);
"""


class Nsight:
    """An export that is filled."""

    def __init__(self, path):
        path.unlink(missing_ok=True)
        self.db = sqlite3.connect(path)
        self.db.executescript(SCHEMA)
        self.strings, self.correlation = {}, 0
        self.db.execute("INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1700000000000000000, '', '')")

    def string(self, text):
        if text not in self.strings:
            self.strings[text] = len(self.strings) + 1
            self.db.execute("INSERT INTO StringIds VALUES (?, ?)", (self.strings[text], text))
        return self.strings[text]

    def range(self, thread, name, start, end):
        """Pushed and popped; torch registers no texts."""
        self.db.execute("INSERT INTO NVTX_EVENTS (start, end, eventType, text, globalTid, domainId) VALUES (?, ?, 59, ?, ?, 0)", (start, end, name, thread))

    def kernel(self, thread, device, stream, launched, start, end, name):
        """A launch by a thread, and the kernel."""
        self.correlation += 1
        self.db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, 0, ?, ?, ?, 0, NULL)",
                        (launched, launched + 3000, thread, self.correlation, self.string("cudaLaunchKernel_v7000")))
        short = self.string(name)
        self.db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?, 1, ?, ?, ?, ?, ?, ?, 1, 0, 32, 1, 1, 1, 128, 1, 1, 0, 0, 0, 0, ?)",
                        (start, end, device, stream, self.correlation, thread >> 24 << 24, short, short, short, self.correlation))


def write_nsight(path):
    """Both processes of a node; the program is ahead of its device by what it enqueued."""
    nsight = Nsight(path)
    schedules, p2p = "megatron.core.pipeline_parallel.schedules.", "megatron.core.pipeline_parallel.p2p_communication.P2PCommunicator."
    for rank, actions in enumerate(times()):
        process = (1 << 56) | ((4000 + 7 * rank) << 24)
        thread, autograd = process | (4000 + 7 * rank), process | (4003 + 7 * rank)
        nsight.db.execute("INSERT INTO PROCESSES VALUES (?, ?, ?)", (process, 4000 + 7 * rank, "python"))
        nsight.db.execute("INSERT INTO ThreadNames VALUES (?, 0, ?)", (nsight.string("pt_autograd_0"), autograd))
        for step in range(STEPS):
            device = 1_000_000_000 + step * STEP
            host = device - 900_000_000 + rank * 1000
            nsight.range(thread, "iteration", host - 1000, host + 19_000_000)
            for kind, _, start, end in actions:
                if kind == "F":
                    nsight.range(thread, p2p + "recv_forward", host, host + 20_000)
                    if rank > 0:
                        nsight.kernel(thread, rank, 20, host + 5000, device + start, device + start, "ncclDevKernel_SendRecv")
                    host += 30_000
                nsight.range(thread, schedules + ("forward_step" if kind == "F" else "backward_step"), host, host + 200_000)
                launcher = thread if kind == "F" else autograd
                middle = (start + end) // 2
                nsight.kernel(launcher, rank, 7, host + 10_000, device + start, device + middle - 5000, "gemm")
                nsight.kernel(launcher, rank, 7, host + 150_000, device + middle, device + end, "gelu")
                host += 210_000
                if kind == "F":
                    nsight.range(thread, p2p + "send_forward", host, host + 20_000)
                    if rank + 1 < RANKS:
                        nsight.kernel(thread, rank, 21, host + 5000, device + end, device + end, "ncclDevKernel_SendRecv")
                    host += 30_000
            last = actions[-1][3]
            nsight.range(thread, "optimizer", host, host + 50_000)
            nsight.kernel(thread, rank, 7, host + 1000, device + last, device + last + OPTIMIZER, "multi_tensor_apply")
    nsight.db.commit()
    nsight.db.execute("VACUUM")
    nsight.db.close()


def varint(number):
    """Base 128, the lowest digits first."""
    result = b""
    while number > 0x7F:
        result += bytes([number & 0x7F | 0x80])
        number >>= 7
    return result + bytes([number])


def number(field, value):
    """A field of a message that is a number; 0 is left out."""
    return varint(field << 3) + varint(value) if value else b""


def data(field, value):
    """A field of a message that is a text or a message."""
    value = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(value)) + value


def node(identifier, name, parent, micros, cpu):
    """A compute node of a rank, as a message with its length before it."""
    attribute = data(1, "is_cpu_op") + varint(27 << 3) + varint(int(cpu))
    tid = data(1, "tid") + number(13, 1)
    text = number(1, identifier) + data(2, name) + number(3, 4) + data(4, varint(parent)) + number(7, micros)
    text += data(8, data(1, "[]") + data(2, "[]") + data(3, "[]")) + data(10, tid) + data(10, attribute)
    return varint(len(text)) + text


def write_chakra(folder):
    """One file for each rank."""
    for rank, row in enumerate(rows()):
        metadata = data(1, "1.0.0") + data(2, data(1, "schema") + data(29, "1.0.2-chakra.0.0.4"))
        text = varint(len(metadata)) + metadata
        text += node(2, "[pytorch|profiler|execution_trace|thread]", 1, 0, True)
        identifier = 3

        def add(name, parent, micros, cpu):
            nonlocal text, identifier
            text += node(identifier, name, parent, micros, cpu)
            identifier += 1
            return identifier - 1

        for _ in range(STEPS):
            for kind, m in row:
                label = add(f"PP:{rank}{kind}{m}", 2, 12, True)
                operator = add("aten::linear", label, 30, True)
                add("gemm", operator, (FORWARD if kind == "F" else BACKWARD) // 1000 - 300, False)
                add("gelu", add("aten::gelu", label, 8, True), 300, False)
            add("multi_tensor_apply", add("Optimizer.step#Adam.step", 2, 0, True), OPTIMIZER // 1000, False)
        (folder / f"chakra.{rank}.et").write_bytes(text)


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    write_nsight(folder / "nsight.sqlite")
    write_chakra(folder)
    for path in sorted(folder.iterdir()):
        print(path.name, path.stat().st_size)


if __name__ == "__main__":
    main()
