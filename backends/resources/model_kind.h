#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pw {

/// What stands for a model: it decides how `loadModel` reads it.
enum class ModelKind : std::uint8_t {
  Archives,    ///< `.pt2`; several: one for each stage
  LayerTable,  ///< JSON or CSV
  Job,         ///< what `pipewright import` wrote
  Trace,       ///< of a job: a file, or the folder of all its ranks
};

/// What these files are, by their content, and where that says nothing by their names; also of files that are not there, which whoever
/// reads them says. Throws UsageError for a folder without traces, and for traces and jobs among several files. Reads their first bytes.
[[nodiscard]] ModelKind kindOfModel(const std::vector<std::string>& paths);

}  // namespace pw
