#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <CLI/App.hpp>
#include <CLI/Validators.hpp>

#include "app/cli/commands.h"
#include "app/cli/options/choices.h"
#include "app/cli/options/schedule.h"
#include "app/cli/order_watch.h"
#include "app/cli/text/output.h"
#include "engine/planning/subject.h"
#include "schedules/csv.h"
#include "schedules/error.h"
#include "schedules/generate.h"
#include "schedules/lower.h"
#include "simulator/order/find.h"

namespace pw::cli {
namespace {

struct ScheduleOptions {
  std::string name;
  ShapeOptions shape;
  std::optional<Lowering> lowered;
  std::optional<Letters> letters;
  std::string costs;
  std::optional<double> seconds;
  std::string out;
};

std::string listText() {
  std::vector<std::vector<std::string>> rows{{"name", "needs", "placement", "order"}};
  for (const Generator& generator : generators()) {
    rows.push_back({std::string(generator.name), std::string(generator.needs), std::string(nameOf(generator.placement)),
                    std::string(generator.summary)});
  }
  for (const MadeSchedule& made : kMadeSchedules)
    rows.push_back({std::string(made.name), "costs", "any but bidirectional", std::string(made.summary)});
  return table(rows) +
         "\nR ranks, V stages per rank (--chunks), M microbatches. What needs costs: plan, simulate, schedule NAME --costs; search tries "
         "auto.\n";
}

/// An order made for a problem file; nothing where its limits hold none.
std::optional<Schedule> orderFor(const ScheduleOptions& options, OrderWatch& watch) {
  if (madeSchedule(options.name) == nullptr)
    throw UsageError(fmt::format("--costs is for schedules made for costs, such as auto; {} needs none", options.name));
  SubjectOptions subject;
  subject.schedule = options.name;
  subject.shape = options.shape;
  subject.costs = options.costs;
  subject.seconds = options.seconds;
  subject.shouldContinue = watch.shouldContinue();
  Subject found = subjectOf(subject);
  watch.end();
  if (!found.certificate) return std::nullopt;
  warn(fmt::format("{}: found by {}; {}", options.name, found.certificate->foundBy, toString(*found.certificate)));
  return std::move(found.schedule);
}

int runSchedule(const ScheduleOptions& options) {
  if (options.name == "list") {
    const bool given =
        options.shape.given() || options.lowered || options.letters || !options.costs.empty() || options.seconds || !options.out.empty();
    if (given) throw UsageError("schedule list shows all schedules; omit the other options");
    print(listText());
    return kYes;
  }
  if (options.seconds && options.costs.empty())
    throw UsageError("--seconds is how long the order of a schedule made for costs is searched; add --costs, or omit it");
  OrderWatch watch(ProgressStyle::Automatic);
  const std::optional<Schedule> compute = options.costs.empty() ? generateFrom(options.name, options.shape) : orderFor(options, watch);
  if (!compute) return complain(options.costs + " has a limit that does not hold one microbatch; simulate --schedule auto says which", kNo);
  const Schedule schedule = options.lowered ? lower(*compute, *options.lowered) : *compute;
  const std::string csv = toCsv(schedule, options.letters.value_or(Letters::Torch));
  if (options.out.empty())
    print(csv);
  else
    writeFile(options.out, csv);
  return watch.status(kYes);
}

}  // namespace

Command addSchedule(CLI::App& app) {
  auto options = std::make_shared<ScheduleOptions>();
  CLI::App* command = app.add_subcommand("schedule", "Print a named schedule as torch CSV, or list all schedules");
  command->add_option("NAME", options->name, "Name of a schedule, or `list` for all names and their requirements")
      ->option_text(" ")
      ->required();
  declareShape(*command, options->shape);
  addChoice(*command, "--lowered", options->lowered,
            "Add sends and receives: in our order (deferred), in torch's, or as torch's runtime lowers (with sharding and reduction)");
  declareLetters(*command, options->letters);
  command->add_option("--costs", options->costs, "For auto, zb-1p, zb-2p: the problem file that the order is made for")
      ->type_name("F.json");
  declareSeconds(*command, options->seconds);
  command->add_option("--out", options->out, "File to write (default: stdout)")->type_name("F.csv");
  command->footer(
      "Examples:\n"
      "  pipewright schedule list\n"
      "  pipewright schedule 1f1b --ranks 4 --microbatches 8\n"
      "  pipewright schedule zbv --ranks 4 --microbatches 8 --lowered torch --out zbv.csv\n"
      "  pipewright schedule auto --costs problem.json --out mine.csv\n"
      "  pipewright schedule interleaved-1f1b --ranks 4 --chunks 2 --microbatches 10 --strict torch\n\n"
      "One row per rank; 2F0 is the forward of stage 2 on microbatch 0, 2B0 its backward, 2I0 and 2W0 the backward's parts\n"
      "for inputs and weights, (2F1;2B0)OVERLAP_F_B two at once. An empty cell is an idle step, as torch writes it.");
  return [options] { return runSchedule(*options); };
}

}  // namespace pw::cli
