#include "backends/resources/model_kind.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "backends/host/files.h"
#include "backends/host/paths.h"
#include "backends/traces/formats.h"
#include "schedules/error.h"
#include "simulator/costs/layer_table.h"
#include "simulator/job/job_json.h"

namespace pw {
namespace {

ModelKind kindOf(const std::string& path) {
  if (looksLikeJob(headOf(path))) return ModelKind::Job;
  if (isCertainlyTrace(path)) return ModelKind::Trace;
  if (isFolder(path))
    throw UsageError(
        fmt::format("{} is a folder without traces ({}); give the archives of a model by their names, or the folder of a job's traces",
                    path, fmt::join(traceEndings(kFolderFormats), " ")));
  return isLayerTableName(path) ? ModelKind::LayerTable : ModelKind::Archives;
}

}  // namespace

ModelKind kindOfModel(const std::vector<std::string>& paths) {
  if (paths.size() == 1) return kindOf(paths.front());
  for (const std::string& path : paths) {
    const ModelKind kind = kindOf(path);
    if (kind == ModelKind::Trace)
      throw UsageError(
          fmt::format("{} is a trace, and several files are the archives of a model's stages; give the folder of all traces", path));
    if (kind == ModelKind::Job)
      throw UsageError(fmt::format("{} is a job, and several files are the archives of a model's stages; give the job alone", path));
  }
  return ModelKind::Archives;
}

}  // namespace pw
