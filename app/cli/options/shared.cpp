#include "app/cli/options/shared.h"

#include <CLI/CLI.hpp>

#include "app/cli/options/choices.h"
#include "app/cli/options/numbers.h"

namespace pw::cli {

void addProgress(CLI::App& command, ProgressStyle& style) {
  addChoice(command, "--progress", style,
            "How progress is shown on stderr: as a bar on a terminal (auto, default), or one JSON line a second");
}

void addSensitivity(CLI::App& command, double& change) {
  command
      .add_option("--sensitivity", change,
                  "How much faster or slower every stage and link would make it that takes this part less or more, and what this much more "
                  "or less memory would, for example 0.1")
      ->check(numberFrom(0.001, 0.999))
      ->option_text("CHANGE");
}

}  // namespace pw::cli
