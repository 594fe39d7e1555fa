#pragma once

#include <QString>
#include <vector>

#include "app/gui/document/document.h"

namespace pw::gui {

/// The contents of a stage's bracket.
struct StageTotals {
  NodeId begin, end;  ///< equal without a model
  Rank rank;
  std::optional<Rank> mirror;    ///< of a bidirectional placement: who else holds it
  Ns forward = 0, backward = 0;  ///< one microbatch
  Bytes state = 0;               ///< parameters, gradients, optimizer state, buffers; 0 as long as nothing is predicted, and where unknown
  Bytes activations = 0;         ///< one microbatch; 0 where unknown
  Bytes rankPeak = 0;            ///< most of its rank at any moment

  bool operator==(const StageTotals&) const = default;
};

/// One for each stage of the design, from the prediction where that is of the same splits, else from the sums of node costs. `sums` of the
/// document's profile; null without one. Cost: linear in stages.
[[nodiscard]] std::vector<StageTotals> stageTotals(const Document& document, const CostSums* sums);

/// `12.4 ms · 3.1 MiB`: forward and backward of a microbatch, and the memory of one; without memory where that is not known.
[[nodiscard]] QString stageFigures(const StageTotals& totals);
/// `Stage 1 · rank 1`, `Stage 1 · ranks 1, 6`.
[[nodiscard]] QString stageTitle(const StageTotals& totals, Stage stage);
/// No longer where two ranks hold it than where one does: `1 · ranks 1, 6`.
[[nodiscard]] QString shortStageTitle(const StageTotals& totals, Stage stage);
/// The title with all details, for a tooltip.
[[nodiscard]] QString stageText(const StageTotals& totals, Stage stage);

}  // namespace pw::gui
