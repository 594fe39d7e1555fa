#include "app/gui/document/execution.h"

#include "app/gui/common/format.h"
#include "simulator/model/graph_facts.h"

namespace pw::gui {

bool rehearses(const Document& document) { return document.graph() && isLayerChain(*document.graph()); }

QString obstacleToRun(const Document& document) {
  if (!document.graph()) return translated("No model is open to run; open one first.");
  if (document.design().job) return translated("A re-planned trace has times and no model, so there is nothing to run; open the model.");
  return document.problem();
}

QString obstacleToProfile(const Document& document) {
  if (!document.graph()) return translated("No model is open to profile; open one first.");
  if (rehearses(document)) return translated("Layers with times of their own have no operators, so there is nothing to measure.");
  return {};
}

}  // namespace pw::gui
