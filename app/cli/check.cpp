#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>
#include <CLI/App.hpp>
#include <CLI/Validators.hpp>
#include <nlohmann/json.hpp>

#include "app/cli/commands.h"
#include "app/cli/options/choices.h"
#include "app/cli/options/schedule.h"
#include "app/cli/text/output.h"
#include "simulator/report/json.h"
#include "simulator/text/json_part.h"

namespace pw::cli {
namespace {

struct CheckOptions {
  std::string file, sizes;
  std::optional<PlacementKind> placement;
  Letters letters = Letters::Torch;
  bool json = false;
};

/// {"sends": [bytes of each stage's output], "receives": [bytes each stage expects]}
MessageSizes readSizes(const std::string& path) {
  const JsonDocument document{path, "list of message sizes", R"(write {"sends": [bytes of each stage], "receives": [...]})"};
  const nlohmann::ordered_json parsed = document.parse(readFile(path));
  const JsonPart json(parsed, document);
  return {json["sends"].listOf<Bytes>(), json["receives"].listOf<Bytes>()};
}

int runCheck(const CheckOptions& options) {
  const Schedule schedule = readSchedule(options.file, options.letters);
  std::vector<Problem> problems = check(schedule);
  if (options.placement) {
    for (Problem& problem : checkPlacement(schedule, *options.placement)) problems.push_back(std::move(problem));
  }
  if (!options.sizes.empty()) {
    for (Problem& problem : checkSizes(schedule, readSizes(options.sizes))) problems.push_back(std::move(problem));
  }
  std::stable_sort(problems.begin(), problems.end(),
                   [](const Problem& a, const Problem& b) { return std::tie(a.rank, a.position) < std::tie(b.rank, b.position); });
  if (options.json) {
    print(versioned(problemsJson(schedule, problems)) + "\n");
    return problems.empty() ? kYes : kNo;
  }
  const PlacementKind placement = kindOf(schedule.placement, shapeOf(schedule));
  print(fmt::format("{}, {} placement\n", shapeLine(schedule), nameOf(placement)));
  if (problems.empty()) {
    const bool lowered = isLowered(schedule);
    print(lowered ? "complete, well ordered and free of deadlock, also with blocking sends and one channel per rank pair\n"
                  : "complete, well ordered and free of deadlock (it has no sends and receives yet)\n");
    return kYes;
  }
  const bool runsAnywhere = std::all_of(problems.begin(), problems.end(), [](const Problem& p) { return p.stops == Stops::Nothing; });
  const std::string count = counted(static_cast<std::int64_t>(problems.size()), "problem");
  print((stops(problems) ? count + "; it cannot run"
                         : count + (runsAnywhere ? "; it can run" : "; it can run only with buffered sends, as in this program")) +
        "\n\n" + problemsText(problems));
  return kNo;
}

}  // namespace

Command addCheck(CLI::App& app) {
  auto options = std::make_shared<CheckOptions>();
  CLI::App* command = app.add_subcommand("check", "Check whether a schedule is complete, well ordered and free of deadlock");
  command->add_option("F.csv", options->file, "Schedule in torch's CSV format: one row per rank, cells such as 0F1 or 2SEND_B0")
      ->option_text(" ")
      ->required();
  addChoice(*command, "--placement", options->placement, "The expected placement; a stage on any other rank is reported as a problem");
  command
      ->add_option("--sizes", options->sizes,
                   R"(JSON with the sizes that stages send and expect: {"sends": [bytes of each stage], "receives": [...]})")
      ->type_name("F.json");
  declareLetters(*command, options->letters);
  command->add_flag("--json", options->json, "One JSON document on stdout");
  command->footer(
      "Examples:\n"
      "  pipewright check mine.csv\n"
      "  pipewright check mine.csv --placement v --json\n"
      "  pipewright check mine.csv --sizes sizes.json\n\n"
      "Exit status 1 if there are problems, including those that stop only blocking sends or transports with one channel\n"
      "for both directions of a rank pair (one NCCL communicator); the column \"stops\" says which.");
  return [options] { return runCheck(*options); };
}

}  // namespace pw::cli
