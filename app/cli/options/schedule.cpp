#include "app/cli/options/schedule.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>
#include <CLI/App.hpp>
#include <CLI/Validators.hpp>

#include "app/cli/options/choices.h"
#include "app/cli/options/numbers.h"
#include "app/cli/text/output.h"
#include "engine/planning/inputs/limits.h"

namespace pw::cli {

void declareShape(CLI::App& command, ShapeOptions& options) {
  command.add_option("--ranks", options.ranks, "Number of ranks (pipeline devices)")->option_text("R")->check(wholeFrom(1, kMaxRanks));
  command.add_option("--chunks", options.chunks, "Stages per rank (default: the schedule's usual number)")
      ->option_text("V")
      ->check(wholeFrom(1, kMaxStages));
  command.add_option("--microbatches", options.microbatches, "Number of microbatches per step")
      ->option_text("M")
      ->check(wholeFrom(1, kMaxMicrobatches));
  command
      .add_option("--group", options.group,
                  "For interleaved-1f1b: microbatches that a chunk processes before the next chunk's turn (Megatron)")
      ->option_text("G")
      ->check(wholeFrom(1, kMaxMicrobatches));
  addChoice(
      command, "--strict", "torch", [&options](std::string_view) { options.strict = true; }, "Refuse combinations that torch refuses");
}

void declareRankOrder(CLI::App& command, std::vector<int>& order) {
  command
      .add_option("--rank-order", order,
                  "Ranks in the order of the pipeline, where the cluster's ranks differ: 3,0,1,2 has stage 0 on rank 3 (default: as "
                  "numbered; `search` looks for the best)")
      ->delimiter(',')
      ->option_text("RANK,...");
}

void declareSeconds(CLI::App& command, std::optional<double>& seconds) {
  command
      .add_option(
          "--seconds", seconds,
          "For the schedule auto: how long its order is searched (default: 2), counted in work, so that the result is always the same")
      ->check(numberFrom(kShortestOrderSearch, kLongestOrderSearch))
      ->option_text("T");
}

bool stops(const std::vector<Problem>& problems) {
  return std::any_of(problems.begin(), problems.end(), [](const Problem& p) { return p.stops == Stops::Always; });
}

namespace {

std::string_view wordsOf(Stops stops) {
  switch (stops) {
    case Stops::Always: return "every run";
    case Stops::OneChannel: return "one channel";
    case Stops::Blocking: return "blocking sends";
    case Stops::Nothing: return "nothing";
  }
  return "?";
}

}  // namespace

std::string problemsText(const std::vector<Problem>& problems) {
  std::vector<std::vector<std::string>> rows{{"rank", "at", "action", "stops", "problem"}};
  for (const Problem& problem : problems) {
    const bool placed = problem.position >= 0;
    const std::string_view stops = wordsOf(problem.stops);
    rows.push_back({fmt::format("{}", problem.rank.value), placed ? fmt::format("{}", problem.position) : "–", toString(problem.action),
                    std::string(stops), problem.message});
  }
  return table(rows);
}

}  // namespace pw::cli
