#include "simulator/job/job.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "schedules/error.h"
#include "schedules/names.h"
#include "schedules/units.h"
#include "simulator/text/counted.h"
#include "simulator/text/number_text.h"

namespace pw {
namespace {

using Key = std::tuple<ActionKind, Stage, Microbatch>;

}  // namespace

std::optional<std::int64_t> stepNumberIn(std::string_view name) {
  name = name.substr(0, name.find(", pass "));
  const auto isDigit = [](char c) { return c >= '0' && c <= '9'; };
  std::size_t end = name.size();
  while (end > 0 && !isDigit(name[end - 1])) --end;
  std::size_t begin = end;
  while (begin > 0 && isDigit(name[begin - 1])) --begin;
  return numberOf<std::int64_t>(name.substr(begin, end - begin));
}

OperationGroup groupNamed(std::string_view operation) {
  const std::string name = plainName(operation);
  const auto holds = [&](std::string_view part) { return name.find(part) != std::string::npos; };
  if (holds("embedding") && communicates(operation)) return OperationGroup::Ends;
  if (holds("clip") || holds("gradnorm")) return OperationGroup::All;
  if (holds("layernorm")) return OperationGroup::Alone;  // of a tensor-parallel group, whose other ranks do the same
  constexpr std::array kOfReplicas{"paramsallgather", "gradsreducescatter", "gradsallreduce", "reducegrad",
                                   "unshard"};  // the last two: torch's schedules with FSDP
  return std::ranges::any_of(kOfReplicas, holds) ? OperationGroup::Replicas : OperationGroup::Alone;
}

bool communicates(std::string_view operation) {
  constexpr std::array kWords{"reduce", "gather", "clip", "gradnorm", "unshard"};
  const std::string name = plainName(operation);
  return std::ranges::any_of(kWords, [&](std::string_view word) { return name.find(word) != std::string::npos; });
}

std::string kindOf(const JobOperation& operation) {
  const std::size_t space = operation.name.rfind(' ');
  if (space == std::string::npos || !numberOf<std::int64_t>(std::string_view(operation.name).substr(space + 1))) return operation.name;
  return operation.name.substr(0, space);
}

JobShape::JobShape(const Job& job)
    : ranks(job.schedule.rows.size()),
      copies(static_cast<std::size_t>(job.replicas) * static_cast<std::size_t>(job.tensor)),
      workers(ranks * copies),
      operations(job.operations.size()) {
  std::map<Key, std::int32_t> made;  // the slot that makes it
  for (std::size_t r = 0; r < ranks; ++r) {
    begin.push_back(copySlots.size());
    for (const Action& action : job.schedule.rows[r]) {
      if (!isCompute(action.kind)) continue;
      made[{action.kind, action.stage, action.microbatch}] = static_cast<std::int32_t>(copySlots.size());
      copySlots.push_back({Rank(r), action});
    }
  }
  begin.push_back(copySlots.size());
  within.resize(copySlots.size());
  for (std::size_t o = 0; o < operations; ++o) {
    for (std::size_t r = 0; r < ranks; ++r) {
      if (turnOf(job, job.operations[o], r) != OperationTurn::Within) continue;
      within[begin[r] + static_cast<std::size_t>(job.operations[o].after[r]) - 1].push_back(static_cast<std::int32_t>(o));
      hasWithin = true;
    }
  }
  const auto last = Stage(static_cast<std::int32_t>(job.schedule.placement.stages()) - 1);
  const auto slotOf = [&](const Key& key) {
    const auto found = made.find(key);
    return found == made.end() ? -1 : found->second;
  };
  for (Slot& slot : copySlots) {
    const Action& a = slot.action;
    if (a.kind == ActionKind::Forward && a.stage.value > 0)
      slot.producer = slotOf({ActionKind::Forward, Stage(a.stage.value - 1), a.microbatch});
    if (makesGradient(a.kind) && a.stage < last) {
      const Stage next(a.stage.value + 1);
      slot.producer = std::max(slotOf({ActionKind::Backward, next, a.microbatch}), slotOf({ActionKind::BackwardInput, next, a.microbatch}));
    }
    slot.crosses = slot.producer >= 0 && copySlots[static_cast<std::size_t>(slot.producer)].rank != slot.rank;
  }
  std::vector<std::size_t> at(begin.begin(), begin.end() - 1);
  std::vector<bool> done(copySlots.size());
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t r = 0; r < ranks; ++r) {
      for (; at[r] < begin[r + 1]; ++at[r], moved = true) {
        const std::int32_t producer = copySlots[at[r]].producer;
        if (producer >= 0 && !done[static_cast<std::size_t>(producer)]) break;
        done[at[r]] = true;
        order.push_back(static_cast<std::int32_t>(at[r]));
      }
    }
  }
  if (order.size() != copySlots.size()) throw Error(fmt::format("The schedule of job {} deadlocks; record the trace again.", job.name));
}

OperationTurn turnOf(const Job& job, const JobOperation& operation, std::size_t rank) {
  const std::int32_t after = operation.after[rank];
  if (!operation.blocks || after < 0) return OperationTurn::After;
  if (after == 0) return OperationTurn::Before;
  // Those of other groups would tie ranks of a pipeline to each other amid their rows.
  const bool isOfRank = operation.group == OperationGroup::Alone || operation.group == OperationGroup::Replicas;
  const bool isAmid = after < std::ssize(job.schedule.rows[rank]);
  return isOfRank && (isAmid || operation.holdsMessage) ? OperationTurn::Within : OperationTurn::After;
}

Ns longestTime(const JobShape& shape) {
  // A chain of what waits for each other takes in every time of one copy at most, but in each worker's operations only one of a kind.
  const std::size_t times = shape.allSlots() + shape.workers * (1 + shape.operations);
  const std::size_t chain = shape.slotsOfCopy() + 1 + shape.operations;
  return Ns(kMostSum / (4 * static_cast<std::int64_t>(std::max(times, shape.ranks * chain)) + 1));
}

std::size_t groupOf(const JobShape& shape, const Job& job, OperationGroup group, JobRank worker) {
  const std::size_t copy = shape.copyOf(worker);
  switch (group) {
    case OperationGroup::Alone: return worker.index();
    case OperationGroup::Replicas: return copy % static_cast<std::size_t>(job.tensor) * shape.ranks + shape.rankOf(worker).index();
    case OperationGroup::Ends: return copy;
    case OperationGroup::All: return 0;
  }
  return 0;
}

std::string warmUpNote(std::size_t count) {
  return count == 1 ? "A step that warms up counts in no mean or median." : "Steps that warm up count in no mean or median.";
}

bool warmsUp(std::string_view step) { return step.ends_with("(warm-up)"); }

std::vector<std::size_t> usualSteps(const Job& job) {
  std::vector<std::size_t> all, usual;
  for (std::size_t k = 0; k < job.steps.size(); ++k) {
    all.push_back(k);
    if (!warmsUp(job.steps[k].name)) usual.push_back(k);
  }
  return usual.empty() ? all : usual;
}

std::string slowStartWords(const Job& job) { return fmt::format("The first step ({})", job.steps.front().name); }

Job withSteps(Job job, std::int64_t first, std::int64_t last) {
  const std::string slowStart = job.steps.empty() ? std::string() : slowStartWords(job);
  std::vector<JobStep> kept;
  for (JobStep& step : job.steps) {
    const auto number = stepNumberIn(step.name);
    if (number && *number >= first && *number <= last) kept.push_back(std::move(step));
  }
  if (kept.empty())
    throw UsageError(fmt::format("{} has no step from {} to {}; its steps go from {} to {}", job.name, first, last, job.steps.front().name,
                                 job.steps.back().name));
  job.steps = std::move(kept);
  if (slowStartWords(job) != slowStart) std::erase_if(job.notes, [&](const std::string& note) { return note.starts_with(slowStart); });
  if (usualSteps(job).size() == job.steps.size())
    std::erase_if(job.notes, [](const std::string& note) { return note == warmUpNote(1) || note == warmUpNote(2); });
  return job;
}

std::string shapeText(const Job& job) {
  const Shape shape = shapeOf(job.schedule);
  std::string text = fmt::format("{}, {} rank{}, {} stage{}, {} microbatch{}", job.schedule.name.empty() ? "own order" : job.schedule.name,
                                 shape.ranks, shape.ranks == 1 ? "" : "s", shape.stages, shape.stages == 1 ? "" : "s", shape.microbatches,
                                 shape.microbatches == 1 ? "" : "es");
  if (job.replicas > 1) text += fmt::format(", {} replicas", job.replicas);
  if (job.tensor > 1) text += fmt::format(", tensor groups of {}", job.tensor);
  return text;
}

std::string stepsText(const Job& job) { return counted(std::ssize(usualSteps(job)), std::string(nameOf(job.times)) + " step"); }

}  // namespace pw
