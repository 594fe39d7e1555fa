#include <memory>
#include <string>

#include <CLI/App.hpp>
#include <fmt/format.h>

#include "app/cli/commands.h"
#include "app/cli/output.h"
#include "app/cli/schedule_options.h"
#include "simulator/json_fields.h"

namespace pw::cli {
namespace {

struct CheckOptions {
  std::string file;
  bool json = false;
};

int runCheck(const CheckOptions& options) {
  const Schedule schedule = readSchedule(options.file);
  const std::vector<Problem> problems = check(schedule);
  const bool failed = stops(problems);
  if (options.json) {
    print(problemsJson(schedule, problems) + "\n");
    return failed ? kNo : kYes;
  }
  print(shapeLine(schedule) + "\n");
  if (problems.empty()) {
    print("complete, well ordered and free of deadlock\n");
    return kYes;
  }
  print((failed ? counted(static_cast<std::int64_t>(problems.size()), "problem") + "; it cannot run"
                : std::string("it can run here, where sends are buffered; with blocking sends it would not")) +
        "\n\n" + problemsText(problems));
  return failed ? kNo : kYes;
}

}  // namespace

Command addCheck(CLI::App& app) {
  auto options = std::make_shared<CheckOptions>();
  CLI::App* command = app.add_subcommand("check", "Is a schedule complete, well ordered and free of deadlock?");
  command->add_option("F.csv", options->file, "Schedule in torch's CSV: a row per rank, cells such as 0F1 or 2SEND_B0")->option_text(" ")->required();
  command->add_flag("--json", options->json, "One JSON document on stdout");
  command->footer(
      "Examples:\n"
      "  pipewright check mine.csv\n"
      "  pipewright schedule 1f1b --ranks 4 --microbatches 8 --out mine.csv\n\n"
      "Exit status 1 when there are problems. A deadlock that only blocking sends would cause is a warning: sends are\n"
      "buffered here.");
  return [options] { return runCheck(*options); };
}

}  // namespace pw::cli
