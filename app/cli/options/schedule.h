#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/cli/options/choices.h"
#include "engine/planning/inputs/schedule_source.h"
#include "schedules/check.h"
#include "schedules/schedule.h"

namespace CLI {
class App;
}

namespace pw::cli {

/// Declares `--ranks R --chunks V --microbatches M [--group G] [--strict torch]` on a subcommand; `options` must outlive it.
void declareShape(CLI::App& command, ShapeOptions& options);

/// Declares `--seconds T` of the schedule auto.
void declareSeconds(CLI::App& command, std::optional<double>& seconds);

/// Declares `--letters torch|zero-bubble` for a CSV: of `Letters`, or optional.
template <class Target>
void declareLetters(CLI::App& command, Target& letters) {
  addChoice(command, "--letters", letters,
            "torch: B is the whole backward, I its part for the inputs; zero-bubble: B is that part where there is a W");
}

/// Declares `--rank-order`.
void declareRankOrder(CLI::App& command, std::vector<int>& order);

/// Whether any problem stops the schedule even with buffered sends, as in this program.
[[nodiscard]] bool stops(const std::vector<Problem>& problems);

/// Problems as text, one per line: rank, position, action, sentence.
[[nodiscard]] std::string problemsText(const std::vector<Problem>& problems);

}  // namespace pw::cli
