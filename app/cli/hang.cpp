#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <CLI/App.hpp>

#include "app/cli/commands.h"
#include "app/cli/options/schedule.h"
#include "app/cli/text/output.h"
#include "backends/dumps/read.h"
#include "simulator/hang/report.h"

namespace pw::cli {
namespace {

struct HangOptions {
  std::vector<std::string> dumps;
  std::string schedule;
  Letters letters = Letters::Torch;
  bool json = false;
};

int runHang(const HangOptions& o) {
  const hang::Dumps dumps = readDumps(o.dumps);
  std::optional<Schedule> schedule;
  if (!o.schedule.empty()) schedule = readSchedule(o.schedule, o.letters);
  const hang::Diagnosis diagnosis = hang::diagnose(dumps, schedule ? &*schedule : nullptr);
  print(o.json ? versioned(hang::diagnosisJson(dumps, diagnosis)) + "\n" : hang::diagnosisText(dumps, diagnosis));
  if (diagnosis.verdict == hang::Verdict::CannotTell) return kUnusable;
  return diagnosis.verdict == hang::Verdict::Nothing ? kYes : kNo;
}

}  // namespace

Command addHang(CLI::App& app) {
  auto options = std::make_shared<HangOptions>();
  CLI::App* command = app.add_subcommand("hang", "Find what stopped a job, from what its ranks recorded");
  command
      ->add_option("DUMPS", options->dumps,
                   "Files or folders: torch's Flight Recorder as JSON (one file for each rank), `ncclras -f json`, flight records of `run`")
      ->option_text(" ")
      ->required();
  command->add_option("--schedule", options->schedule, "The schedule that the job ran, to name actions and to say whether check finds it")
      ->type_name("F.csv");
  declareLetters(*command, options->letters);
  command->add_flag("--json", options->json, "One JSON document on stdout");
  command->footer(
      "Examples:\n"
      "  pipewright hang dumps/ --schedule mine.csv\n"
      "  pipewright hang runs.db.flight-rank-0.json runs.db.flight-rank-1.json\n\n"
      "The verdict is silent_rank, cycle, size_mismatch, missing_message, collective_mismatch, in_flight, nothing or cannot_tell. A\n"
      "schedule with sends and receives says more than one without. Pickled dumps are refused, because reading one can run any code;\n"
      "in the job, torch._C._distributed_c10d._dump_fr_trace_json() makes JSON. Exit status 1 if something waits, 2 if the dumps cannot\n"
      "tell: torch's Flight Recorder keeps no sends and receives of Gloo, and NCCL RAS shows no waits.");
  return [options] { return runHang(*options); };
}

}  // namespace pw::cli
