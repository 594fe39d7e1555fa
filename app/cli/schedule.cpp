#include <memory>
#include <string>

#include <CLI/App.hpp>
#include <fmt/format.h>

#include "app/cli/commands.h"
#include "app/cli/output.h"
#include "app/cli/schedule_options.h"
#include "schedules/csv.h"
#include "schedules/error.h"
#include "schedules/generate.h"
#include "schedules/lower.h"

namespace pw::cli {
namespace {

struct ScheduleOptions {
  std::string name;
  ShapeOptions shape;
  std::string lowered;
  std::string out;
};

std::string listText() {
  std::vector<std::vector<std::string>> rows{{"name", "needs", "order"}};
  for (const Generator& generator : generators()) {
    rows.push_back({std::string(generator.name), std::string(generator.needs), std::string(generator.summary)});
  }
  return table(rows);
}

int runSchedule(const ScheduleOptions& options) {
  if (options.name == "list") {
    print(listText());
    return kYes;
  }
  if (!options.lowered.empty() && options.lowered != "deferred") {
    throw UsageError(fmt::format("\"{}\" is no lowering of this version; write --lowered deferred, or leave it out for compute actions only",
                                 options.lowered));
  }
  const Schedule compute = generateFrom(options.name, options.shape);
  const std::string csv = toCsv(options.lowered.empty() ? compute : lower(compute));
  if (options.out.empty()) print(csv);
  else writeFile(options.out, csv);
  return kYes;
}

}  // namespace

Command addSchedule(CLI::App& app) {
  auto options = std::make_shared<ScheduleOptions>();
  CLI::App* command = app.add_subcommand("schedule", "Print a named schedule as torch CSV, or list the names");
  command->add_option("NAME", options->name, "Name of a schedule, or list for all with what they need")->option_text(" ")->required();
  declareShape(*command, options->shape);
  command->add_option("--lowered", options->lowered, "With sends and receives: deferred, the order in which they run here")->type_name("ORDER");
  command->add_option("--out", options->out, "Write here instead of to stdout")->type_name("F.csv");
  command->footer(
      "Examples:\n"
      "  pipewright schedule list\n"
      "  pipewright schedule 1f1b --ranks 4 --microbatches 8\n"
      "  pipewright schedule gpipe --ranks 2 --microbatches 4 --lowered deferred --out gpipe.csv\n\n"
      "A row per rank; 2F0 is the forward of stage 2 on microbatch 0, 2B0 its backward.");
  return [options] { return runSchedule(*options); };
}

}  // namespace pw::cli
