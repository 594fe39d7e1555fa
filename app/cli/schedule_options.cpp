#include "app/cli/schedule_options.h"

#include <algorithm>
#include <filesystem>
#include <limits>

#include <fmt/format.h>
#include <CLI/App.hpp>
#include <CLI/Validators.hpp>

#include "app/cli/numbers.h"
#include "app/cli/output.h"
#include "schedules/csv.h"
#include "schedules/error.h"
#include "schedules/generate.h"
#include "schedules/lower.h"

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
  command.add_option("--strict", options.strict, "Refuse combinations that torch refuses")
      ->option_text("torch")
      ->check(CLI::IsMember({"torch"}));
}

namespace {

Schedule withoutIdle(Schedule schedule) {
  for (auto& row : schedule.rows) std::erase(row, kIdle);
  return schedule;
}

Schedule readShaped(const std::string& path, const ShapeOptions& options) {
  Schedule schedule = readSchedule(path, Letters::Torch);
  const Shape shape = shapeOf(schedule);
  const auto agree = [&](std::string_view what, std::int64_t given, std::int64_t there) {
    if (given != 0 && given != there) throw UsageError(fmt::format("{} has {} {}, not {}; leave out the option", path, there, what, given));
  };
  agree("ranks", options.ranks, shape.ranks);
  agree("stages", std::int64_t{options.chunks} * shape.ranks, shape.stages);
  agree("microbatches", options.microbatches, shape.microbatches);
  if (options.group > 0 || !options.strict.empty())
    throw UsageError(path + " is not a schedule of torch's or Megatron's; omit --strict and --group");
  return schedule;
}

}  // namespace

Schedule generateFrom(const std::string& name, const ShapeOptions& options) {
  if (name.ends_with(".csv")) return readShaped(name, options);
  const Generator& family = generatorOf(name);
  if (options.ranks == 0 || options.microbatches == 0) {
    throw UsageError(
        fmt::format("schedule {} needs the number of ranks and microbatches; give {}", name,
                    options.ranks == 0 ? options.microbatches == 0 ? "--ranks and --microbatches" : "--ranks" : "--microbatches"));
  }
  const int chunks = options.chunks == 0 ? family.chunks : options.chunks;
  const std::int64_t stages = std::int64_t{options.ranks} * chunks;
  const Shape shape{options.ranks, static_cast<int>(std::min<std::int64_t>(stages, std::numeric_limits<int>::max())), options.microbatches};
  if (!options.strict.empty()) {
    if (family.torchName.empty()) throw UsageError(fmt::format("torch has no schedule {}; omit --strict torch", name));
    const auto refusal = family.torchRefusal == nullptr ? std::nullopt : family.torchRefusal(shape);
    if (!family.refusal(shape) && refusal) throw UsageError(refusalSentence(name, *refusal));
  }
  if (options.group > 0) {
    if (family.name != "interleaved-1f1b")
      throw UsageError(fmt::format("schedule {} has no groups; omit --group, or use interleaved-1f1b", name));
    Schedule schedule = interleavedWithGroups(shape, options.group);
    if (!options.strict.empty() && withoutIdle(schedule).rows != withoutIdle(generate(name, shape)).rows) {
      throw UsageError(fmt::format("groups of {} are not those of torch; omit --group or --strict torch", options.group));
    }
    return schedule;
  }
  return generate(name, shape);
}

Schedule readSchedule(const std::string& path, Letters letters) {
  return parseCsv(readFile(path), std::filesystem::path(path).stem().string(), path, letters);
}

void declareLetters(CLI::App& command, std::string& letters) {
  command
      .add_option("--letters", letters,
                  "torch: B is the whole backward, I its part for the inputs; zero-bubble: B is that part where there is a W")
      ->option_text("torch|zero-bubble")
      ->check(CLI::IsMember({"torch", "zero-bubble"}));
}

Letters parseLetters(const std::string& text) { return text == "zero-bubble" ? Letters::ZeroBubble : Letters::Torch; }

std::string shapeLine(const Schedule& schedule) {
  const Shape shape = shapeOf(schedule);
  return fmt::format("{}: {}, {}, {}", schedule.name, counted(shape.ranks, "rank"), counted(shape.stages, "stage"),
                     counted(shape.microbatches, "microbatch"));
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
