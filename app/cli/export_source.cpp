#include "app/cli/export_source.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include <fmt/format.h>

#include "app/cli/commands.h"
#include "app/cli/text/output.h"
#include "backends/host/paths.h"
#include "backends/resources/resources.h"
#include "backends/store/run_store.h"
#include "backends/traces/formats.h"
#include "backends/traces/import.h"
#include "engine/planning/inputs/job_source.h"
#include "schedules/error.h"
#include "schedules/units.h"
#include "simulator/costs/layer_table.h"
#include "simulator/step/simulate.h"

namespace pw::cli {
namespace {

Ns endOf(const Trace& trace) {
  Ns end = 0;
  for (const Span& span : trace.spans) end = std::max(end, span.end);
  return end;
}

ExportMaterial fromPlan(const ExportSource& o) {
  const Plan plan = loadPlan(o.plan);
  ExportMaterial material;
  material.names = {"predicted"};
  material.traces.push_back(simulate(plan.schedule, plan.costs));
  material.title = fmt::format("{}, {}, predicted", plan.modelName, plan.schedule.name);
  material.plan = plan;
  return material;
}

ExportMaterial fromStore(const ExportSource& o) {
  const RunStore store(o.store, RunStore::Mode::ReadOnly);
  if (!store.note().empty()) warn(store.note());
  const RunRecord run = store.load(o.run > 0 ? std::optional<RunId>(RunId(o.run)) : std::nullopt);
  ExportMaterial material;
  material.names.emplace_back("predicted");
  material.traces.push_back(run.predicted);
  material.title = fmt::format("run {}: {}, {}, predicted", run.id.value, run.plan.modelName, run.plan.schedule.name);
  material.plan = run.plan;
  material.run = run.id.value;
  if (o.predicted) return material;
  StepRecord step = store.loadStep(run, o.step >= 0 ? std::optional(o.step) : std::nullopt);
  material.names.push_back(fmt::format("{} step {}", nameOf(timesOf(run.facts)), step.step));
  material.traces.push_back(std::move(step.measured));
  material.chosen = 1;
  material.times = timesOf(run.facts);
  material.title = fmt::format("run {}: {}, {}, step {}", run.id.value, run.plan.modelName, run.plan.schedule.name, step.step);
  return material;
}

ExportMaterial fromTrace(const ExportSource& o) {
  const auto show = progress("read", o.progressStyle);
  constexpr std::uint64_t kKilobyte = 1024;  // the bar counts in int
  std::optional<ImportedTrace> imported = importTrace(o.traces,
                                                      [&](std::uint64_t done, std::uint64_t all) {
                                                        show(static_cast<int>(done / kKilobyte), static_cast<int>(all / kKilobyte), "");
                                                        return true;
                                                      },
                                                      {o.patterns});
  ExportMaterial material;
  std::vector<ReductionGroups> reductions;
  for (ImportedStep& step : imported->steps) {
    reductions.push_back(reductionGroups(step.operations, step.trace.ranks, imported->replicas, imported->tensor));
    material.names.push_back(std::move(step.name));
    material.traces.push_back(std::move(step.trace));
  }
  const std::size_t count = material.traces.size();
  if (o.step >= 0) {
    if (o.step < 1 || static_cast<std::size_t>(o.step) > count)
      throw UsageError(fmt::format("--step {} is not one of the {} of {}; they count from 1", o.step,
                                   counted(static_cast<std::int64_t>(count), "step"), imported->title));
    material.chosen = static_cast<std::size_t>(o.step) - 1;
  } else if (count > 1) {  // the median of those after the first, which warms up
    std::vector<Ns> ends;
    for (const Trace& trace : material.traces) ends.push_back(endOf(trace));
    material.chosen = typicalStep(material.names, ends);
  }
  if (count > 1) material.step = static_cast<int>(material.chosen) + 1;
  material.reductions = std::move(reductions[material.chosen]);
  material.title = fmt::format("{}, {}", imported->title, material.names[material.chosen]);
  for (const std::string& note : imported->notes) complain(note, kYes);
  return material;
}

/// The prediction of the plan, and the step of the trace that is measured.
ExportMaterial fromPlanAndTrace(const ExportSource& o) {
  ExportMaterial material = fromPlan(o), measured = fromTrace(o);
  material.names.push_back(measured.names[measured.chosen]);
  material.traces.push_back(std::move(measured.traces[measured.chosen]));
  material.chosen = 1;
  material.step = measured.step;
  material.reductions = std::move(measured.reductions);
  material.title += " and " + measured.title;
  return material;
}

}  // namespace

ExportMaterial materialOf(const ExportSource& source) {
  if (!source.plan.empty()) return source.traces.empty() ? fromPlan(source) : fromPlanAndTrace(source);
  return source.store.empty() ? fromTrace(source) : fromStore(source);
}

}  // namespace pw::cli
