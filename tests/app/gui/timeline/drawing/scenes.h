#pragma once

#include <memory>
#include <string>
#include <utility>

#include "app/gui/timeline/drawing/scene.h"
#include "schedules/generate.h"
#include "simulator/step/compile.h"
#include "simulator/step/cost_table.h"
#include "simulator/step/execute.h"
#include "simulator/step/program.h"
#include "simulator/timeline/fill.h"

namespace pw::gui {

/// F takes `unit`, B twice as long, I as long.
inline std::shared_ptr<const Timeline> timelineOfSchedule(const std::string& name, const Shape& shape, Ns unit = 1000) {
  SyntheticCosts synthetic;
  synthetic.forward = {unit};
  synthetic.backward = {2 * unit};
  synthetic.backwardInput = {unit};
  synthetic.latency = unit / 10;
  synthetic.transfer = unit / 5;
  const Schedule schedule = generate(name, shape);
  CostTable costs = syntheticTable(synthetic, shape.stages);
  for (StageCost& stage : costs.stages) stage.activationBytes = 100;
  const Program program = compile(schedule, costs);
  Times times;
  execute(program, times);
  auto timeline = std::make_shared<Timeline>();
  fillTimeline(schedule, costs, program, times, *timeline);
  return timeline;
}

/// With every rank.
inline Scene sceneOf(std::shared_ptr<const Timeline> timeline) {
  Scene scene;
  scene.predicted = std::move(timeline);
  for (std::size_t r = 0; r < scene.predicted->ranks.size(); ++r) scene.ranks.push_back({Rank(r)});
  return scene;
}

}  // namespace pw::gui
