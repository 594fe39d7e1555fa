#include "app/cli/schedule_options.h"

#include <algorithm>
#include <filesystem>
#include <limits>

#include <CLI/App.hpp>
#include <CLI/Validators.hpp>
#include <fmt/format.h>

#include "app/cli/output.h"
#include "schedules/csv.h"
#include "schedules/error.h"
#include "schedules/generate.h"

namespace pw::cli {

void declareShape(CLI::App& command, ShapeOptions& options) {
  command.add_option("--ranks", options.ranks, "How many devices")->option_text("R")->check(CLI::Range(1, kMaxRanks));
  command.add_option("--chunks", options.chunks, "Stages per rank; 1 without it")->option_text("V")->check(CLI::Range(1, kMaxStages));
  command.add_option("--microbatches", options.microbatches, "Pieces of a batch")->option_text("M")->check(CLI::Range(1, kMaxMicrobatches));
}

Schedule generateFrom(const std::string& name, const ShapeOptions& options) {
  if (options.ranks == 0 || options.microbatches == 0) {
    throw UsageError(fmt::format("schedule {} needs to know how many ranks and microbatches; give {}", name,
                                 options.ranks == 0 ? options.microbatches == 0 ? "--ranks and --microbatches" : "--ranks" : "--microbatches"));
  }
  const std::int64_t stages = std::int64_t{options.ranks} * options.chunks;
  const auto bounded = static_cast<int>(std::min<std::int64_t>(stages, std::numeric_limits<int>::max()));  // `generate` refuses such
  const auto known = std::ranges::find(generators(), name, &Generator::name);
  if (options.chunks > 1 && known != generators().end() && known->refusal({options.ranks, bounded, options.microbatches}) &&
      !known->refusal({options.ranks, options.ranks, options.microbatches})) {
    throw UsageError(fmt::format("schedule {} has one stage per rank, not {}; leave out --chunks", name, options.chunks));
  }
  return generate(name, {options.ranks, bounded, options.microbatches});
}

Schedule readSchedule(const std::string& path) {
  return parseCsv(readFile(path), std::filesystem::path(path).stem().string(), path);
}

std::string shapeLine(const Schedule& schedule) {
  const Shape shape = shapeOf(schedule);
  return fmt::format("{}: {}, {}, {}", schedule.name, counted(shape.ranks, "rank"), counted(shape.stages, "stage"),
                     counted(shape.microbatches, "microbatch"));
}

bool stops(const std::vector<Problem>& problems) {
  return std::any_of(problems.begin(), problems.end(), [](const Problem& p) { return !p.blockingOnly; });
}

std::string problemsText(const std::vector<Problem>& problems) {
  std::vector<std::vector<std::string>> rows{{"rank", "at", "action", "problem"}};
  for (const Problem& problem : problems) {
    const bool placed = problem.position >= 0;
    rows.push_back({fmt::format("{}", problem.rank.value), placed ? fmt::format("{}", problem.position) : "–", toString(problem.action),
                    (problem.blockingOnly ? "warning: " : "") + problem.message});
  }
  return table(rows);
}

}  // namespace pw::cli
