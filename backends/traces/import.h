#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "backends/traces/events/imported.h"
#include "simulator/job/measured.h"

namespace pw {

/// Receives the progress of an import from time to time [bytes of all files]; returns false to stop it.
using ImportProgress = std::function<bool(std::uint64_t done, std::uint64_t all)>;

/// What an import may be told.
struct ImportOptions {
  std::string patterns;  ///< path of a file of patterns for names (`backends/traces/names/patterns.h`); empty: none
};

/// Reads measured traces of other tools; the format is detected by content (`backends/traces/formats.h` lists them):
/// - Chrome/Kineto JSON of torch.profiler, one file or one for each rank (or a folder of them): spans named by torch's schedules (`PP:2F0`,
///   `PP:1SEND_F3`, `PP:(0F5;7B2)OVERLAP_F_B`, `Forward 3`), `Optimizer.step#…`, and memory. Ranks come from `distributedInfo`, names of
///   processes and threads (`rank 3`), or file names; else processes (or threads) in order. Where torch recorded both, times are the
///   device's. `ProfilerStep#N`, or an action that comes again, begins a step.
///   Files whose clocks disagree are put on one by what they send each other. Ranks that do the same are replicas beside each other.
/// - exports of Nsight Systems (`nsys export --type sqlite`), one file or several: NVTX ranges named as torch, Megatron (`forward_step`,
///   `send_forward_recv_backward`, …) and DeepSpeed name them, or by `options.patterns`; with the times of the kernels launched in them.
/// - Chakra's execution traces, protobuf (`.et`) or JSON, one file for each rank: nodes with such names. Where they hold durations only, as
///   Chakra's converter of PyTorch writes them, an action starts when its rank and its input are there.
/// - what `toChromeJson` writes: each trace of it is a step;
/// - what `toSpanCsv` writes;
/// - the folder (or any file of it) Primus dumps with `dump_pp_data`: `config.json` and one `pp_rank_N.json` for each rank. Arrays hold a
///   rank's operations in its order, so the k-th forward is the k-th of interleaved 1F1B in groups of as many microbatches as there are
///   ranks, unless chunks and microbatches are named;
/// - NDTimeline's JSON, one file or several of one job, as ByteDance-Seed/StragglerAnalysis publishes it: operations by name
///   (`forward-compute`, `grads-reduce-scatter`), step and worker (`DP rank [0]`, `PP rank 0, TP rank 0, compute`).
///
/// Compute spans of a rank that overlap are cut, so that every trace keeps the rules of `Trace`; waits and messages stay. Returns nothing
/// when `progress` stopped it. Throws UsageError for a file that cannot be read, is not a trace, or contains no pipeline labels. Chrome
/// JSON is read in windows, never whole: about 60 bytes of memory for each span. Cost: linear, times a logarithm where spans of several
/// ranks follow each other.
[[nodiscard]] std::optional<ImportedTrace> importTrace(const std::vector<std::string>& paths, const ImportProgress& progress = {},
                                                       const ImportOptions& options = {});

/// The import as it was measured: its steps, and those of a trace of this program as it says how they came about. Where a run has its
/// prediction beside its steps, these are the job's.
[[nodiscard]] MeasuredJob measuredOf(ImportedTrace imported);

}  // namespace pw
