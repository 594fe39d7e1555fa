#include "backends/resources/torch_export.h"

#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "backends/host/files.h"
#include "backends/host/installation.h"
#include "schedules/error.h"
#include "simulator/plan/torch_plan.h"

namespace pw {

std::vector<std::string> writeTorchPlan(const Plan& plan, const ModelGraph& graph, const std::string& folder) {
  namespace fs = std::filesystem;
  const TorchPlan exported = torchPlan(plan, graph);
  std::error_code problem;
  fs::create_directories(folder, problem);
  if (problem) throw UsageError(fmt::format("the folder {} cannot be created: {}; choose another", folder, problem.message()));
  const auto file = [&](const char* name) { return (fs::path(folder) / name).string(); };
  writeFile(file("schedule.csv"), exported.schedule);
  writeFile(file("pipeline.json"), exported.settings);
  for (const auto& [resource, name] : {std::pair("torch_pipeline.py", "run.py"), std::pair("torch_stages.py", "stages.py")})
    writeFile(file(name), readFile((fs::path(resourceFolder()) / resource).string()));
  return exported.notes;
}

}  // namespace pw
