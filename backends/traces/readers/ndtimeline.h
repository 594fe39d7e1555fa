#pragma once

// Internal to the import of traces: NDTimeline's JSON, as ByteDance-Seed/StragglerAnalysis publishes it.

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "simulator/trace/trace.h"

namespace pw {

/// A worker as the names of its process and threads say.
struct NdWorker {
  std::int32_t replica = 0;  ///< `DP rank [3]`
  std::int32_t tensor = 0;   ///< `PP rank 0, TP rank 1, compute`
  Rank pipeline;

  auto operator<=>(const NdWorker&) const = default;
};

/// One operation of a worker. Numbers are −1 where the file does not say them.
struct NdOperation {
  std::int32_t worker = 0;  ///< in `NdEvents::workers`
  std::int32_t kind = 0;    ///< in `NdEvents::kinds`
  std::int64_t step = 0;
  std::int32_t chunk = -1;
  Microbatch microbatch = Microbatch(-1);
  Ns start = 0, end = 0;
};

struct NdEvents {
  std::vector<NdWorker> workers;
  std::vector<std::size_t> files;  ///< by worker: the file that names it first, whose clock its times are of
  std::vector<std::string> kinds;  ///< `forward-compute`, `backward-recv`, …
  std::vector<NdOperation> operations;
  std::uint64_t nameless = 0;  ///< operations of threads whose worker is not named
  std::uint64_t unusable = 0;  ///< without usable times or step
  bool truncated = false;
};

/// Whether the file looks like one. Reads its first megabyte. Throws UsageError for a file that cannot be read or is no JSON.
[[nodiscard]] bool isNdTimeline(const std::string& path);

/// Reads files of one job; nothing where `advance` stopped it, which gets the file's number and the bytes read of it. Throws UsageError for
/// damaged JSON.
[[nodiscard]] std::optional<NdEvents> readNdFiles(const std::vector<std::string>& paths,
                                                  const std::function<bool(std::size_t file, std::uint64_t bytes)>& advance);

}  // namespace pw
