#include "app/cli/options/optimizer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <string_view>
#include <vector>

#include "app/cli/options/numbers.h"

namespace pw::cli {

void declareOptimizerState(CLI::App& command, OptimizerSpec& optimizer, bool& zero1, const std::string& more) {
  command
      .add_option_function<std::string>(
          "--optimizer", [&optimizer](const std::string& name) { optimizer.kind = parseOptimizer(name); },
          "Optimizer whose state is counted in memory and time (default: sgd, which has none)" + more)
      ->option_text(optimizerNames("|"));
  command
      .add_option("--momentum", optimizer.momentum, fmt::format("Of {}: momentum, one more number of state per parameter", withMomentum()))
      ->check(numberFrom(0, 1))
      ->option_text("X");
  command.add_flag("--zero1", zero1, "Spread the optimizer's state over the replicas (ZeRO stage 1)");
}

std::string withMomentum() {
  std::vector<std::string_view> names;
  for (const OptimizerFacts& facts : kOptimizers) {
    if (facts.hasMomentum) names.push_back(facts.name);
  }
  return fmt::format("{}", fmt::join(names, " or "));
}

}  // namespace pw::cli
