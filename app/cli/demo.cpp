#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <utility>

#include "app/cli/child.h"
#include "app/cli/commands.h"
#include "app/cli/options/numbers.h"
#include "app/cli/text/output.h"
#include "backends/host/installation.h"
#include "backends/host/paths.h"
#include "schedules/error.h"

namespace pw::cli {
namespace {

namespace fs = std::filesystem;

struct DemoArguments {
  std::string model, folder = "pipewright-demo", schedule = "1f1b";
  int ranks = 2, microbatches = 8, steps = 10;
};

/// Prints a command as a user would type it, and runs it. Returns its exit status.
int show(const std::vector<std::string>& arguments) {
  std::string line = "$ pipewright";
  for (const std::string& argument : arguments) line += " " + argument;
  print(fmt::format("\n{}\n\n", line));
  std::fflush(stdout);
  std::vector<std::string> words{ownPath()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return runAndWait(std::move(words));
}

int runDemo(const DemoArguments& o) {
  const std::string model = o.model.empty() ? (fs::path(resourceFolder()) / "models" / "gpt_small.pt2").string() : o.model;
  std::error_code problem;
  fs::create_directories(o.folder, problem);
  if (!isFolder(o.folder))
    throw UsageError(fmt::format("cannot create the folder {} ({}); choose another one with --out", o.folder, problem.message()));
  const std::string plan = (fs::path(o.folder) / "plan.json").string();
  const std::string store = (fs::path(o.folder) / "runs.db").string();
  const std::vector<std::vector<std::string>> calls{
      {"inspect", model, "--depth", "1"},
      {"plan", model, "--ranks", std::to_string(o.ranks), "--microbatches", std::to_string(o.microbatches), "--schedule", o.schedule,
       "--out", plan},
      {"run", plan, "--steps", std::to_string(o.steps), "--store", store, "--verify"},
      {"compare", "--store", store},
      {"runs", "--store", store},
  };
  for (const auto& call : calls) {
    if (const int status = show(call); status != kYes) return status;
  }
  return kYes;
}

}  // namespace

Command addDemo(CLI::App& app) {
  auto* sub = app.add_subcommand("demo", "Show the main workflow on a sample: inspect, plan, run on real ranks, compare");
  auto o = std::make_shared<DemoArguments>();
  sub->add_option("--model", o->model, "Model archive (default: the small sample GPT)")->option_text("MODEL.pt2");
  sub->add_option("--ranks", o->ranks, "Ranks")->check(wholeFrom(1, 64))->option_text("R");
  sub->add_option("--microbatches", o->microbatches, "Microbatches")->check(wholeFrom(1, 1024))->option_text("M");
  sub->add_option("--schedule", o->schedule, "A name of `pipewright schedule list` (default 1f1b)")->option_text("NAME");
  sub->add_option("--steps", o->steps, "Training steps")->check(wholeFrom(1, 100000))->option_text("N");
  sub->add_option("--out", o->folder, "Folder for plan and run store")->option_text("FOLDER");
  sub->footer(
      "\nExamples:\n"
      "  pipewright demo\n"
      "  pipewright demo --model gpt.pt2 --ranks 4 --schedule gpipe");
  return [o] { return runDemo(*o); };
}

}  // namespace pw::cli
