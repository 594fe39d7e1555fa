#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/planning/layout_subject.h"
#include "engine/planning/prediction.h"

namespace pw {

/// How evenly something is spread over the ranks: transformer layers, or the time of a microbatch.
struct LayoutBalance {
  double most = 0, mean = 0;  ///< of a rank

  [[nodiscard]] double above() const { return mean > 0 ? most / mean - 1 : 0; }  ///< of the most loaded rank over the mean
};
[[nodiscard]] LayoutBalance layersBalance(const ExaminedLayout& layout);
[[nodiscard]] LayoutBalance timesBalance(const ExaminedLayout& layout);  ///< of a layout with a subject

/// What becomes of a layout string: whether Megatron takes it, whether its schedule hangs, and with a table what it costs.
struct LayoutAnswer {
  ExaminedLayout examined;
  std::vector<std::string> deadlock;           ///< why its schedule hangs as Megatron posts its messages; empty: it does not
  std::optional<SubjectPrediction> predicted;  ///< with a table, of a layout that runs

  [[nodiscard]] bool isAccepted() const { return examined.problems.empty() && !examined.refusal; }
};

/// Examines the layout and predicts a step as Megatron runs it. Throws as `examineLayout`. Cost: a simulation.
[[nodiscard]] LayoutAnswer answerLayout(const LayoutOptions& options);

/// The document of `layout --json` without its version and a final newline; keys have a fixed order.
[[nodiscard]] std::string layoutJson(const LayoutAnswer& answer);

}  // namespace pw
