#include "app/cli/export_plan.h"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

#include "app/cli/commands.h"
#include "app/cli/text/output.h"
#include "backends/resources/resources.h"
#include "schedules/error.h"
#include "simulator/layout/megatron_plan.h"
#include "simulator/layout/torchtitan_plan.h"

namespace pw::cli {

int exportMegatron(const Plan& plan, const std::string& out, std::optional<std::int64_t> layers, Bytes memoryLimit) {
  const MegatronPlan megatron = megatronPlan(plan, loadModel(plan.modelFiles), layers, memoryLimit);
  const std::string text = out.ends_with(".json") ? toJson(megatron) : toText(megatron, plan);
  if (out.empty()) {
    print(text);
    return megatron.fits ? kYes : kNo;
  }
  writeFile(out, text);
  print(fmt::format("{}: {}\n", out, toString(megatron.layout)));
  for (const std::string& note : megatron.notes) print(note + "\n");
  return megatron.fits ? kYes : kNo;
}

/// Throws UsageError where a shell would read the path as something else: `$(cat arguments.txt)` cuts at blanks and keeps quotes.
std::string requirePlainPath(const std::string& path) {
  static constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:,+=@%";
  const bool isPlain =
      std::ranges::all_of(path, [](char c) { return static_cast<unsigned char>(c) >= 0x80 || kPlain.find(c) != std::string_view::npos; });
  if (isPlain) return path;
  throw UsageError(fmt::format(
      "a shell would not read {} in arguments.txt as one argument; give --out a folder without blanks, quotes and other signs", path));
}

int exportTorchtitan(const Plan& plan, const std::string& folder, std::optional<std::int64_t> layers) {
  namespace fs = std::filesystem;
  if (folder.empty()) throw UsageError("--to torchtitan writes several files; give their folder with --out DIR");
  const auto file = [&](const char* name) { return (fs::path(folder) / name).string(); };
  const std::string schedule = requirePlainPath(fs::absolute(file("schedule.csv")).lexically_normal().string());
  const TorchtitanPlan titan = torchtitanPlan(plan, loadModel(plan.modelFiles), layers);
  std::error_code problem;
  fs::create_directories(folder, problem);
  if (problem) throw UsageError(fmt::format("the folder {} cannot be created: {}; choose another", folder, problem.message()));
  writeFile(file("schedule.csv"), titan.schedule);
  std::string arguments = fmt::format("--parallelism.pipeline_parallel_schedule_csv {}\n", schedule);
  for (const std::string& argument : titan.arguments) arguments += argument + "\n";
  writeFile(file("arguments.txt"), arguments);
  writeFile(file("config.py"), titan.python);
  print(
      fmt::format("{} for torchtitan 0.3: append $(cat {}) to your call, or the lines of {} to your configuration (with the path "
                  "of schedule.csv as your program sees it)\n",
                  plan.modelName, file("arguments.txt"), file("config.py")));
  for (const std::string& note : titan.notes) print(note + "\n");
  return kYes;
}

}  // namespace pw::cli
