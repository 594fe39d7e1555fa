#include "simulator/job/typical.h"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "simulator/job/replay_job.h"
#include "simulator/text/median.h"

namespace pw {
namespace {

/// 0 of none.
Ns median(const std::vector<Ns>& values) { return medianOf(values).value_or(Ns{0}); }

Ns halfQuartiles(std::vector<Ns>& values) {
  if (values.size() < 2) return 0;
  std::sort(values.begin(), values.end());
  return (values[values.size() - 1 - values.size() / 4] - values[values.size() / 4]) / 2;
}

/// What is usual of a time that is not always known.
class Usual {
 public:
  explicit Usual(const JobShape& shape) : shape_(shape), bySlot_(shape.slotsOfCopy()) {}
  void add(std::size_t slot, Ns time) {
    if (time >= 0) bySlot_[slot].push_back(time);
  }
  /// By slot of a copy; `count`: how often each was done.
  [[nodiscard]] std::vector<Ns> medians(std::size_t count) const;

 private:
  const JobShape& shape_;
  std::vector<std::vector<Ns>> bySlot_;
};

std::vector<Ns> Usual::medians(std::size_t count) const {
  constexpr std::size_t kEnough = 3;
  const auto placeOf = [&](std::size_t s) {
    const JobShape::Slot& slot = shape_.copySlots[s];
    return std::tuple(slot.rank, slot.action.stage, slot.action.kind);
  };
  std::map<std::tuple<Rank, Stage, ActionKind>, std::vector<Ns>> places;
  for (std::size_t s = 0; s < bySlot_.size(); ++s) {
    std::vector<Ns>& place = places[placeOf(s)];
    place.insert(place.end(), bySlot_[s].begin(), bySlot_[s].end());
  }
  std::map<std::tuple<Rank, Stage, ActionKind>, Ns> usual;
  for (const auto& [place, times] : places) usual[place] = median(times);
  std::vector<Ns> result;
  for (std::size_t s = 0; s < bySlot_.size(); ++s) {
    const bool known = bySlot_[s].size() >= std::min(kEnough, count) && 2 * bySlot_[s].size() >= count;
    result.push_back(known ? median(bySlot_[s]) : usual[placeOf(s)]);
  }
  return result;
}

}  // namespace

std::vector<std::vector<Ns>> messageTimes(const JobShape& shape, const Job& job, const std::vector<Ns>& waits) {
  constexpr std::size_t kEnough = 3;
  struct Fastest {
    Ns time = std::numeric_limits<Ns>::max();
    std::size_t count = 0;
  };
  std::map<std::pair<Stage, ActionKind>, Fastest> ofStage;
  std::map<ActionKind, Fastest> ofKind;
  for (const JobStep& step : job.steps) {
    forSlots(shape, [&](std::size_t i, std::size_t, const JobShape::Slot& slot) {
      if (!slot.crosses || step.messages[i] < 0) return;
      for (Fastest* fastest : {&ofStage[{slot.action.stage, slot.action.kind}], &ofKind[slot.action.kind]}) {
        fastest->time = std::min(fastest->time, step.messages[i]);
        ++fastest->count;
      }
    });
  }
  std::vector<std::vector<Ns>> all;
  JobReplay replay;
  for (const JobStep& step : job.steps) {
    JobTimes times{step.actions, {}, {}, step.operations, step.operationWaits};
    forSlots(shape, [&](std::size_t i, std::size_t s, const JobShape::Slot&) {
      times.waits.push_back(step.waits[i] >= 0 ? step.waits[i] : waits[s]);
      times.messages.push_back(std::max<Ns>(0, step.messages[i]));
    });
    for (Ns& wait : times.operationWaits) wait = std::max<Ns>(0, wait);
    replayJob(shape, job, times, replay);
    std::vector<Ns>& messages = all.emplace_back(step.messages);
    forSlots(shape, [&](std::size_t i, std::size_t s, const JobShape::Slot& slot) {
      if (!slot.crosses) messages[i] = 0;
      if (messages[i] >= 0) return;
      const auto known = ofStage.find({slot.action.stage, slot.action.kind});
      const Fastest& fastest = known != ofStage.end() && known->second.count >= kEnough ? known->second : ofKind[slot.action.kind];
      const Ns made = replay.left[i - s + static_cast<std::size_t>(slot.producer)];
      const Ns room = std::max<Ns>(0, replay.start[i] - times.waits[i] - made);
      messages[i] = fastest.count > 0 ? std::min(fastest.time, room) : 0;
    });
  }
  return all;
}

TypicalTimes typicalTimes(const JobShape& shape, const Job& job) {
  TypicalTimes typical;
  std::vector<std::vector<Ns>> durations(shape.slotsOfCopy() * shape.copies), operations(shape.ranks * shape.operations),
      delays(operations.size());
  Usual waits(shape), messages(shape);
  const std::vector<std::size_t> usual = usualSteps(job);
  for (const std::size_t k : usual) {
    const JobStep& step = job.steps[k];
    forSlots(shape, [&](std::size_t i, std::size_t s, const JobShape::Slot&) {
      durations[i].push_back(step.actions[i]);
      waits.add(s, step.waits[i]);
    });
    for (std::size_t at = 0; at < step.operations.size(); ++at) {
      const std::size_t operation = at % shape.operations, rank = at / shape.operations % shape.ranks;
      if (step.operations[at] >= 0) operations[rank * shape.operations + operation].push_back(step.operations[at]);
      if (step.operationWaits[at] >= 0) delays[rank * shape.operations + operation].push_back(step.operationWaits[at]);
    }
  }
  typical.spread.assign(shape.slotsOfCopy(), 0);
  forSlots(shape, [&](std::size_t i, std::size_t s, const JobShape::Slot&) {
    typical.spread[s] = std::max(typical.spread[s], halfQuartiles(durations[i]));
  });
  const std::size_t count = usual.size() * shape.copies;
  const std::vector<Ns> wait = waits.medians(count);
  const std::vector<std::vector<Ns>> all = messageTimes(shape, job, wait);
  for (const std::size_t k : usual) {
    forSlots(shape, [&](std::size_t i, std::size_t s, const JobShape::Slot&) { messages.add(s, all[k][i]); });
  }
  const std::vector<Ns> message = messages.medians(count);
  forSlots(shape, [&](std::size_t i, std::size_t s, const JobShape::Slot& slot) {
    typical.times.actions.push_back(median(durations[i]));
    typical.times.waits.push_back(wait[s]);
    typical.times.messages.push_back(slot.crosses ? message[s] : 0);
  });
  std::vector<Ns> operation, delay;
  for (const auto& values : operations) operation.push_back(values.empty() ? kUnknownTime : median(values));
  for (const auto& values : delays) delay.push_back(median(values));
  for (std::size_t w = 0; w < shape.workers; ++w) {
    for (std::size_t o = 0; o < shape.operations; ++o) {
      typical.times.operations.push_back(operation[w % shape.ranks * shape.operations + o]);
      typical.times.operationWaits.push_back(delay[w % shape.ranks * shape.operations + o]);
    }
  }
  return typical;
}

std::size_t slowestCopy(const JobShape& shape, const Job& job, const JobTimes& times) {
  JobShape alone = shape;  // copies that wait for each other amid their rows end together
  alone.hasWithin = false;
  JobReplay replay;
  replayJob(alone, job, times, replay);
  std::vector<Ns> ends(shape.copies, 0);
  forSlots(shape, [&](std::size_t i, std::size_t, const JobShape::Slot&) {
    Ns& end = ends[i / shape.slotsOfCopy()];
    end = std::max(end, replay.end[i]);
  });
  return static_cast<std::size_t>(std::ranges::max_element(ends) - ends.begin());
}

std::string usualText(const Job& job) { return fmt::format("usual times of {} ({})", job.name, stepsText(job)); }

}  // namespace pw
