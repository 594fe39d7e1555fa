#pragma once

#include <string>

#include "simulator/plan/optimizer.h"

namespace CLI {
class App;
}

namespace pw::cli {

/// Declares --optimizer, --momentum and --zero1 of a command that counts an optimizer's state. `more`: after the help of the first.
void declareOptimizerState(CLI::App& command, OptimizerSpec& optimizer, bool& zero1, const std::string& more = "");

/// The optimizers with a momentum: `sgd or rmsprop`.
[[nodiscard]] std::string withMomentum();

}  // namespace pw::cli
