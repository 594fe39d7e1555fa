#include <memory>
#include <optional>
#include <string>

#include <fmt/format.h>
#include <CLI/App.hpp>
#include <CLI/Validators.hpp>

#include "app/cli/commands.h"
#include "app/cli/options/choices.h"
#include "app/cli/options/numbers.h"
#include "app/cli/options/schedule.h"
#include "app/cli/text/output.h"
#include "engine/planning/subject.h"
#include "schedules/csv.h"
#include "schedules/error.h"
#include "schedules/lower.h"
#include "simulator/runtime/runtime.h"

namespace pw::cli {
namespace {

struct LowerOptions {
  SubjectOptions subject;
  std::optional<Lowering> lowered;
  bool minimiseWaits = false;
  std::string out;
};

Schedule lowered(const LowerOptions& o, const Subject& subject) {
  if (!o.minimiseWaits) return lower(subject.schedule, o.lowered.value_or(Lowering::Deferred));
  return messagesWhenDue(subject.schedule, subject.costs);
}

int runLower(const LowerOptions& o) {
  if (o.minimiseWaits && o.lowered) throw UsageError("--minimise-waits places receives itself; omit --lowered");
  if (!o.minimiseWaits && (hasTimes(o.subject) || !o.subject.layers.empty()))
    throw UsageError(
        "only --minimise-waits looks at times; add it, or omit --forward, --backward, --input, --weight, --latency, --transfer and "
        "--layers");
  const Subject subject = subjectOf(o.subject);
  const std::string csv = toCsv(lowered(o, subject));
  if (o.out.empty())
    print(csv);
  else
    writeFile(o.out, csv);
  return kYes;
}

}  // namespace

Command addLower(CLI::App& app) {
  auto options = std::make_shared<LowerOptions>();
  CLI::App* command = app.add_subcommand("lower", "Add sends and receives to a schedule, or place them anew");
  command->add_option("F.csv", options->subject.csv, "A schedule in torch's CSV; messages in it are replaced")
      ->option_text("(required)")
      ->required();
  declareLetters(*command, options->subject.letters);
  addChoice(*command, "--lowered", options->lowered, "Whose order: ours (deferred, the default), torch's, or as torch's runtime lowers");
  command->add_flag("--minimise-waits", options->minimiseWaits,
                    "Place sends and receives so that, with these times, pending receives stop ranks for as short as possible");
  const std::string perStage = "; one value, or one per stage: 1ms,2ms";
  command->add_option("--forward", options->subject.forward, "Time of a forward" + perStage)->type_name("T")->check(durationList());
  command->add_option("--backward", options->subject.backward, "Time of a backward (default: twice the forward)")
      ->type_name("T")
      ->check(durationList());
  command->add_option("--input", options->subject.input, "Time of the backward's part for the inputs")
      ->type_name("T")
      ->check(durationList());
  command->add_option("--weight", options->subject.weight, "Time of the backward's part for the weights")
      ->type_name("T")
      ->check(durationList());
  command->add_option("--latency", options->subject.latency, "Latency of a message: from the end of its action to its arrival")
      ->type_name("T")
      ->check(aDuration());
  command->add_option("--transfer", options->subject.transfer, "Transfer time of a message")->type_name("T")->check(aDuration());
  command->add_option("--layers", options->subject.layers, "A table of layers with their costs (JSON or CSV) instead of these times")
      ->type_name("F.json|F.csv");
  command->add_option("--split", options->subject.splits, "With --layers: the layers that begin stages (default: balanced by time)")
      ->delimiter(',')
      ->option_text("NAME,...");
  command->add_option("--out", options->out, "File to write (default: stdout)")->type_name("F.csv");
  command->footer(
      "Examples:\n"
      "  pipewright lower mine.csv --lowered torch\n"
      "  pipewright lower mine.csv --minimise-waits --forward 1ms --backward 2ms --out lowered.csv\n\n"
      "torch reads the result with _PipelineScheduleRuntime._load_csv(path, format=\"compute_comms\").");
  return [options] { return runLower(*options); };
}

}  // namespace pw::cli
