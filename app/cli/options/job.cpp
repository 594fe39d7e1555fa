#include "app/cli/options/job.h"

#include <CLI/App.hpp>

#include "app/cli/options/numbers.h"
#include "app/cli/text/output.h"

namespace pw::cli {

void declareSteps(CLI::App& command, std::string& steps) {
  command.add_option("--steps", steps, "Only these steps, by their numbers: 5-8 or 12 (default: all)")->option_text("A-B");
}

void declarePatterns(CLI::App& command, std::string& patterns) {
  command.add_option("--patterns", patterns, "Regular expressions for the names of a trace's events (JSON)")->option_text("F.json");
}

void declareJob(CLI::App& command, JobOptions& options) {
  command.add_option("TRACE", options.paths, "Traces of one job (files or folders), a job or a plan (JSON)")->option_text(" ");
  command.add_option("--store", options.store, "File that `pipewright run --store` wrote, instead")->option_text("F.db");
  command
      .add_option_function<int>(
          "--run", [&options](int id) { options.run = RunId(id); }, "With --store: which run (default: the newest)")
      ->option_text("ID")
      ->check(wholeFrom(1, 1 << 30));
  declareSteps(command, options.steps);
  declarePatterns(command, options.patterns);
}

JobProgress byteProgress(const std::string& task, ProgressStyle style) {
  constexpr int kParts = 1000;
  return [show = progress(task, style), last = -1](std::uint64_t done, std::uint64_t all) mutable {
    const int part = all > 0 ? static_cast<int>(static_cast<double>(done) / static_cast<double>(all) * kParts) : kParts;
    if (part != last) show(part, kParts, "");
    last = part;
    return true;
  };
}

}  // namespace pw::cli
