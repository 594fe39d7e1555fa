#pragma once

#include "schedules/generate.h"
#include "schedules/lower.h"
#include "simulator/plan/plan.h"
#include "simulator/step/cost_table.h"

namespace pw::test {

/// 1F1B on two ranks with three microbatches, planned without measuring; its model is nowhere.
inline Plan planOfTwoStages() {
  Plan plan;
  plan.modelFiles = {"/nowhere/small.pt2"};
  plan.modelName = "small";
  plan.batch = 3;
  plan.schedule = lower(generate("1f1b", {2, 2, 3}));
  plan.costs = syntheticTable(
      {.forward = {10}, .backward = {20}, .backwardInput = {10}, .backwardWeight = {10}, .latency = 1, .transfer = 2, .overlap = {}}, 2);
  plan.partition.stages = {{NodeId(0), NodeId(4), {}, {ValueId(0)}, {0}, {}, {}, {}}, {NodeId(4), NodeId(9), {}, {}, {1}, {}, {}, {}}};
  plan.partition.transfers = {{ValueId(5), Stage(0), Stage(1), true, 4096}};
  plan.splitNames = {"blocks.1"};
  return plan;
}

}  // namespace pw::test
