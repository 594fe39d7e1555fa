#include "app/gui/model/parts/stage_totals.h"

#include <algorithm>

#include "app/gui/common/format.h"
#include "app/gui/model/parts/links.h"

namespace pw::gui {
namespace {

void takePredicted(StageTotals& totals, const Prediction& prediction, std::size_t stage) {
  const StageCost& cost = prediction.costs.stages[stage];
  totals.forward = cost.forward;
  totals.backward = cost.backward;
  totals.state = cost.parameterBytes + cost.gradientBytes + cost.optimizerBytes + cost.fixedBytes;
  totals.activations = cost.activationBytes;
}

void takeRank(StageTotals& totals, const Prediction& prediction, std::size_t stage) {
  const Placement& placement = prediction.rows->placement;
  totals.rank = placement.rankOfStage[stage];
  if (placement.bidirectional()) totals.mirror = placement.mirrorOfStage[stage];
  if (totals.rank.index() < prediction.ranks.size()) totals.rankPeak = prediction.ranks[totals.rank.index()].peakBytes;
}

}  // namespace

std::vector<StageTotals> stageTotals(const Document& document, const CostSums* sums) {
  const auto graph = document.graph();
  const auto prediction = document.prediction();
  const auto& begins = document.design().request.begins;
  const bool hasRows = prediction && prediction->rows && prediction->costs.stages.size() == prediction->rows->placement.stages();
  if (!graph && !hasRows) return {};
  const std::size_t stages = graph ? begins.size() + 1 : prediction->costs.stages.size();
  const bool sameCount = hasRows && prediction->costs.stages.size() == stages;
  const bool sameSplits = sameCount && (!graph || isOf(prediction->priced.partition, begins));
  const int ranks = std::max(1, document.design().request.ranks);
  std::vector<StageTotals> list(stages);
  for (std::size_t s = 0; s < stages; ++s) {
    StageTotals& totals = list[s];
    totals.rank = Rank(static_cast<int>(s) % ranks);
    if (graph) {
      totals.begin = s == 0 ? NodeId(0) : begins[s - 1];
      totals.end = s < begins.size() ? begins[s] : NodeId(graph->nodes.size());
    }
    if (sameCount) takeRank(totals, *prediction, s);
    if (sameSplits) {
      takePredicted(totals, *prediction, s);
    } else if (sums != nullptr && totals.begin < totals.end) {
      const NodeCost cost = sums->range(totals.begin, totals.end);
      totals.forward = cost.forward;
      totals.backward = cost.backward;
      totals.activations = std::max<Bytes>(0, cost.saved);
    }
  }
  return list;
}

QString stageTitle(const StageTotals& totals, Stage stage) {
  const QString rank = totals.mirror ? translated("ranks %1, %2").arg(totals.rank.value).arg(totals.mirror->value)
                                     : translated("rank %1").arg(totals.rank.value);
  return translated("Stage %1 · %2").arg(stage.value).arg(rank);
}

QString shortStageTitle(const StageTotals& totals, Stage stage) {
  if (!totals.mirror) return stageTitle(totals, stage);
  return translated("%1 · ranks %2, %3").arg(stage.value).arg(totals.rank.value).arg(totals.mirror->value);
}

QString stageFigures(const StageTotals& totals) {
  const Ns time = totals.forward + totals.backward;
  const Bytes memory = totals.state + totals.activations;
  if (memory > 0) return translated("%1 · %2").arg(durationText(time), sizeText(memory));
  return time > 0 ? durationText(time) : QString();
}

QString stageText(const StageTotals& totals, Stage stage) {
  QString text = QStringLiteral("<b>%1</b><table cellspacing='0' cellpadding='2'>").arg(stageTitle(totals, stage));
  const auto line = [&](const QString& what, const QString& value) {
    text += QStringLiteral("<tr><td>%1</td><td align='right'>%2</td></tr>").arg(what, value);
  };
  line(translated("forward, one microbatch"), durationText(totals.forward));
  line(translated("backward"), durationText(totals.backward));
  if (totals.state > 0) line(translated("parameters, gradients, optimizer, buffers"), sizeText(totals.state));
  if (totals.activations > 0) line(translated("activations, one microbatch"), sizeText(totals.activations));
  if (totals.rankPeak > 0) line(translated("peak of its rank, all microbatches in flight"), sizeText(totals.rankPeak));
  return text + QStringLiteral("</table>");
}

}  // namespace pw::gui
