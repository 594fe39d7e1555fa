#include "app/gui/document/drawn.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "app/gui/document/loading.h"
#include "schedules/check.h"
#include "schedules/editing/adapt.h"
#include "schedules/error.h"
#include "schedules/generate.h"
#include "schedules/lower.h"
#include "simulator/order/improve.h"
#include "simulator/order/problem/made_schedules.h"
#include "simulator/plan/made_order.h"

namespace pw::gui {
namespace {

bool isTaken(const Design& design, std::string_view name) {
  return drawnNamed(design, name) != nullptr || madeSchedule(name) != nullptr ||
         std::ranges::any_of(generators(), [&](const Generator& g) { return g.name == name; });
}

std::string freeName(const Design& design, const std::string& wanted) {
  std::string name = wanted;
  for (int n = 2; isTaken(design, name); ++n) name = fmt::format("{} {}", wanted, n);
  return name;
}

bool hasActionsOf(const Design& design, const Schedule& schedule) {
  return std::ranges::any_of(design.drawn, [&](const auto& drawn) {
    Schedule renamed = *drawn;
    renamed.name = schedule.name;
    return renamed == schedule;
  });
}

/// Without a model, the times are of so many stages: those of a CSV are alike, others are of the plan that they came with.
void fitCosts(Design& design, const Schedule& schedule) {
  if (!design.customCosts) return;
  const auto had = static_cast<int>(design.customCosts->stages.size()), has = static_cast<int>(schedule.placement.stages());
  if (had == has) return;
  if (!design.defaultTimes)
    throw UsageError(
        fmt::format("The plan's times are of {} stages, and this schedule has {}; open the plan's model to change them.", had, has));
  design.customCosts = std::make_shared<const CostTable>(costsOf(*design.defaultTimes, has));
}

/// Adds it, and makes it the design's schedule.
void take(Design& design, Schedule schedule) {
  fitCosts(design, schedule);
  PlanRequest& request = design.request;
  request.schedule = schedule.name;
  request.ranks = static_cast<int>(schedule.rows.size());
  request.chunks = std::max(1, static_cast<int>(schedule.placement.stages()) / std::max(1, request.ranks));
  if (request.microbatches != schedule.microbatches) request.batch = 0;
  request.microbatches = schedule.microbatches;
  request.rankOrder.clear();  // its rows are in that order
  design.customRows.reset();
  if (!design.customCosts) design.source.clear();  // a schedule without a model keeps its file's costs
  design.drawn.push_back(std::make_shared<const Schedule>(std::move(schedule)));
}

}  // namespace

std::shared_ptr<const Schedule> drawnNamed(const Design& design, std::string_view name) {
  const auto found = std::ranges::find_if(design.drawn, [&](const auto& drawn) { return drawn->name == name; });
  return found == design.drawn.end() ? nullptr : *found;
}

std::shared_ptr<const Schedule> drawnOf(const Design& design) {
  return design.customRows ? nullptr : drawnNamed(design, design.request.schedule);
}

void keepOwn(Design& plan, const Design& before) {
  plan.notes = before.notes;
  for (const auto& drawn : before.drawn) {  // first, so that each keeps its name
    if (drawnNamed(plan, drawn->name) == nullptr && !hasActionsOf(plan, *drawn)) plan.drawn.push_back(drawn);
  }
  for (const auto& drawn : before.drawn) {
    if (hasActionsOf(plan, *drawn)) continue;
    auto renamed = std::make_shared<Schedule>(*drawn);
    renamed->name = freeName(plan, drawn->name);
    plan.drawn.push_back(std::move(renamed));
  }
}

namespace {

std::variant<Schedule, std::string> adaptedTo(const Design& design, const Schedule& drawn) {
  const int stages = static_cast<int>(drawn.placement.stages()), ranks = design.request.ranks;
  const bool hasOwnChunks = ranks == static_cast<int>(drawn.rows.size()) && design.request.chunks == std::max(1, stages / ranks);
  const Shape shape{ranks, hasOwnChunks ? stages : ranks * std::max(1, design.request.chunks), design.request.microbatches};
  auto result = adapted(drawn, shape);
  if (const auto* refusal = std::get_if<std::string>(&result)) return *refusal + "; set these numbers back, or choose another schedule.";
  return result;
}

std::variant<Schedule, std::string> familyFor(const Design& design) {
  const PlanRequest& request = design.request;
  const Shape shape{request.ranks, stagesOf(design), request.microbatches};
  if (const auto refusal = generatorOf(request.schedule).refusal(shape)) return refusalSentence(request.schedule, *refusal) + ".";
  Schedule schedule = generate(request.schedule, shape);
  return request.rankOrder.empty() ? schedule : withRankOrder(schedule, request.rankOrder);
}

std::variant<Schedule, std::string> shownSchedule(const Document& document) {
  const Design& design = document.design();
  if (!document.graph() && !design.customCosts) return "Nothing is open whose schedule could be edited; open a model or a schedule first.";
  if (const auto drawn = drawnOf(design)) return adaptedTo(design, *drawn);
  if (design.customRows) return computeOnly(*design.customRows);
  if (madeSchedule(design.request.schedule) == nullptr) return familyFor(design);
  if (document.isPredicting() || !document.prediction() || !document.problem().isEmpty())
    return "The order for these costs is still being made; try again in a moment.";
  return computeOnly(*document.prediction()->rows);
}

}  // namespace

Schedule drawnFor(const Design& design, const Schedule& drawn) {
  auto result = adaptedTo(design, drawn);
  if (const auto* refusal = std::get_if<std::string>(&result)) throw UsageError(*refusal);
  return std::get<Schedule>(std::move(result));
}

std::variant<Schedule, std::string> editableSchedule(const Document& document) {
  auto shown = shownSchedule(document);
  if (auto* schedule = std::get_if<Schedule>(&shown)) schedule->lockstep = false;  // an order by hand keeps no cycles
  return shown;
}

void setDrawn(Document& document, const QString& what, Schedule schedule) {
  document.edit(what, [&](Design& design) {
    const auto drawn = drawnOf(design);
    if (drawn) {
      schedule.name = drawn->name;
      std::erase(design.drawn, drawn);
    } else {
      schedule.name = freeName(design, design.request.schedule + ", edited");
    }
    take(design, std::move(schedule));
  });
}

void addDrawn(Document& document, const QString& what, Schedule schedule) {
  if (const auto problems = check(schedule); !problems.empty())
    throw UsageError("Schedule " + refusalOf(schedule.name, problems.front()) + ".");
  document.edit(what, [&](Design& design) {
    schedule.name = freeName(design, schedule.name);
    take(design, std::move(schedule));
  });
}

Schedule improved(const Schedule& schedule, const Design& design, const ModelGraph* graph, const Profile* profile,
                  const OrderEffort& effort) {
  const auto overlaps = [](const std::vector<Action>& row) { return std::ranges::any_of(row, &Action::overlapsNext); };
  if (std::ranges::any_of(schedule.rows, overlaps))
    throw UsageError("An order with overlapped pairs cannot be improved, as the search would take them apart; do that first (Shift+O).");
  if (graph != nullptr) {
    ModelCosts model(*graph, *profile, design.request.microbatch);
    return improvedSchedule(design.request, model, schedule, effort);
  }
  const OrderProblem problem{
      schedule.microbatches, static_cast<int>(schedule.rows.size()), schedule.placement, *design.customCosts, {}, {}, {}, StepClock::Flush};
  return improveOrder(problem, schedule, effort);
}

}  // namespace pw::gui
