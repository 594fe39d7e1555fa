#pragma once

// Internal to the import of traces: the readers whose files go through `assemble`, and that of Primus.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "backends/traces/events/events.h"
#include "backends/traces/events/imported.h"
#include "backends/traces/names/patterns.h"

namespace pw {

/// Reads a Chrome JSON file; `advance` gets the bytes read so far and returns whether to continue. Nothing if it did not. Throws UsageError
/// for a file that is no such JSON.
[[nodiscard]] std::optional<FileEvents> readChromeFile(const std::string& path, const NamePatterns& patterns,
                                                       const std::function<bool(std::uint64_t bytes)>& advance);

/// Reads an export of Nsight Systems in SQLite: the ranges of NVTX that label actions, of each process, with the times of the kernels that
/// were launched in them where there are any. As above.
[[nodiscard]] std::optional<FileEvents> readNsightFile(const std::string& path, const NamePatterns& patterns,
                                                       const std::function<bool(std::uint64_t bytes)>& advance);

/// Reads a trace dumped by Primus. `folder` holds config.json and pp_rank_N.json.
[[nodiscard]] ImportedTrace readPrimus(const std::string& folder);

}  // namespace pw
