#pragma once

#include <memory>
#include <string_view>

#include "schedules/generate.h"
#include "schedules/lower.h"
#include "simulator/plan/predictor.h"
#include "simulator/step/cost_table.h"

namespace pw::gui {

inline constexpr Ns kMs = 1'000'000;

/// F = 1 ms, I = W = 1 ms (B = 2 ms), and between ranks a transfer of 0.2 ms and a latency of 0.1 ms. A microbatch in flight takes 100 B.
inline CostTable smallCosts(int stages) {
  SyntheticCosts costs;
  costs.forward = {kMs};
  costs.backwardInput = {kMs};
  costs.backwardWeight = {kMs};
  costs.transfer = kMs / 5;
  costs.latency = kMs / 10;
  CostTable table = syntheticTable(costs, stages);
  for (StageCost& stage : table.stages) stage.activationBytes = 100;
  return table;
}

inline std::shared_ptr<const Prediction> smallPrediction(std::string_view schedule = "1f1b", int ranks = 4, int microbatches = 8) {
  const Schedule compute = generate(schedule, {ranks, ranks * generatorOf(schedule).chunks, microbatches});
  Predictor predictor;
  return predictor.predict(std::make_shared<const Schedule>(lower(compute)), smallCosts(static_cast<int>(compute.placement.stages())));
}

}  // namespace pw::gui
