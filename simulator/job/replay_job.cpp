#include "simulator/job/replay_job.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "simulator/job/measured.h"
#include "simulator/trace/span_kind.h"

namespace pw {
namespace {

/// Does operations of a step, one after the other.
class Operations {
 public:
  Operations(const JobShape& shape, const Job& job, const JobTimes& times, JobReplay& replay)
      : shape_(shape), job_(job), times_(times), replay_(replay), all_(shape.workers, 0) {}
  /// All of a turn. `free`: by worker, when it can do the next.
  void run(OperationTurn turn, std::vector<Ns>& free);
  /// Those that rows hold for after a slot, in all copies.
  void runWithin(std::size_t slot, std::vector<Ns>& free);

 private:
  /// Of workers from `first` on, each `stride`-th.
  template <class Does>
  void one(std::size_t operation, std::size_t first, std::size_t stride, const Does& does, std::vector<Ns>& free);

  const JobShape& shape_;
  const Job& job_;
  const JobTimes& times_;
  JobReplay& replay_;
  std::vector<Ns> all_;  ///< by group: when the last of its workers has come
};

template <class Does>
void Operations::one(std::size_t operation, std::size_t first, std::size_t stride, const Does& does, std::vector<Ns>& free) {
  const JobOperation& done = job_.operations[operation];
  const auto forWorkers = [&](const auto& visit) {
    for (std::size_t w = first; w < shape_.workers; w += stride) {
      const std::size_t at = w * shape_.operations + operation;
      if (done.after[w % shape_.ranks] >= 0 && times_.operations[at] >= 0 && does(w % shape_.ranks)) visit(w, at);
    }
  };
  forWorkers([&](std::size_t w, std::size_t) { all_[groupOf(shape_, job_, done.group, JobRank(w))] = 0; });
  forWorkers([&](std::size_t w, std::size_t at) {
    const std::size_t rank = w % shape_.ranks, after = static_cast<std::size_t>(done.after[rank]);
    Ns ready = free[w];
    if (after > 0) ready = std::max(ready, replay_.next[w / shape_.ranks * shape_.slotsOfCopy() + shape_.begin[rank] + after - 1]);
    replay_.operationStart[at] = ready + times_.operationWaits[at];
    Ns& all = all_[groupOf(shape_, job_, done.group, JobRank(w))];
    all = std::max(all, replay_.operationStart[at]);
  });
  forWorkers([&](std::size_t w, std::size_t at) {
    free[w] = replay_.operationEnd[at] = all_[groupOf(shape_, job_, done.group, JobRank(w))] + times_.operations[at];
    replay_.step = std::max(replay_.step, free[w]);
  });
}

void Operations::run(OperationTurn turn, std::vector<Ns>& free) {
  for (std::size_t o = 0; o < shape_.operations; ++o)
    one(
        o, 0, 1, [&](std::size_t rank) { return turnOf(job_, job_.operations[o], rank) == turn; }, free);
}

void Operations::runWithin(std::size_t slot, std::vector<Ns>& free) {
  const std::size_t own = shape_.copySlots[slot].rank.index();
  for (const std::int32_t o : shape_.within[slot]) {
    one(
        static_cast<std::size_t>(o), own, shape_.ranks, [](std::size_t) { return true; }, free);
    for (std::size_t copy = 0; copy < shape_.copies; ++copy) {
      const std::size_t i = copy * shape_.slotsOfCopy() + slot;
      const Ns end = replay_.operationEnd[(copy * shape_.ranks + own) * shape_.operations + static_cast<std::size_t>(o)];
      replay_.next[i] = std::max(replay_.next[i], end);
      if (job_.operations[static_cast<std::size_t>(o)].holdsMessage) replay_.left[i] = std::max(replay_.left[i], end);
    }
  }
}

}  // namespace

void replayJob(const JobShape& shape, const Job& job, const JobTimes& times, JobReplay& replay) {
  replay.start.assign(shape.allSlots(), 0);
  replay.end.assign(shape.allSlots(), 0);
  replay.left.assign(shape.allSlots(), 0);
  replay.next.assign(shape.allSlots(), 0);
  replay.operationStart.assign(shape.workers * shape.operations, 0);
  replay.operationEnd.assign(shape.workers * shape.operations, 0);
  replay.step = 0;
  std::vector<Ns> free(shape.workers, 0);
  Operations operations(shape, job, times, replay);
  operations.run(OperationTurn::Before, free);
  std::vector<Ns> beside = free;  // the others do not hold the rank; those after the row come after its last action
  Ns first = std::numeric_limits<Ns>::max(), last = 0;
  const auto doSlot = [&](std::size_t copy, std::size_t s) {
    const JobShape::Slot& slot = shape.copySlots[s];
    const std::size_t base = copy * shape.slotsOfCopy(), i = base + s;
    Ns& rank = free[copy * shape.ranks + slot.rank.index()];
    Ns ready = rank;
    if (slot.producer >= 0) {
      const std::size_t producer = base + static_cast<std::size_t>(slot.producer);
      ready = std::max(ready, slot.crosses ? replay.left[producer] + times.messages[i] : replay.end[producer]);
    }
    replay.start[i] = ready + times.waits[i];
    rank = replay.next[i] = replay.left[i] = replay.end[i] = replay.start[i] + times.actions[i];
    first = std::min(first, replay.start[i]);
    last = std::max(last, rank);
  };
  if (shape.hasWithin) {  // copies wait for each other amid their rows
    for (const std::int32_t s : shape.order) {
      for (std::size_t copy = 0; copy < shape.copies; ++copy) doSlot(copy, static_cast<std::size_t>(s));
      operations.runWithin(static_cast<std::size_t>(s), free);
    }
  } else {
    for (std::size_t copy = 0; copy < shape.copies; ++copy) {
      for (const std::int32_t s : shape.order) doSlot(copy, static_cast<std::size_t>(s));
    }
  }
  replay.makespan = std::max<Ns>(0, last - first);
  replay.step = std::max(replay.step, last);
  operations.run(OperationTurn::After, beside);
}

std::vector<Stall> stallsOf(const JobShape& shape, const Job& job, const TypicalTimes& typical) {
  std::vector<Stall> stalls;
  for (std::size_t k = 0; k < job.steps.size(); ++k) {
    const JobStep& step = job.steps[k];
    const auto least = static_cast<Ns>(kStallShare * static_cast<double>(step.makespan));
    const auto note = [&](Stall stall, Ns time, Ns usual) {
      if (time < 0 || time - usual <= least) return;
      stall.step = k;
      stall.lost = time - usual;
      stalls.push_back(stall);
    };
    forSlots(shape, [&](std::size_t i, std::size_t, const JobShape::Slot& slot) {
      const Stall stall{.worker = JobRank(i / shape.slotsOfCopy() * shape.ranks + slot.rank.index()), .slot = static_cast<std::int32_t>(i)};
      note(stall, step.waits[i], typical.times.waits[i]);
      Stall message = stall;
      message.message = true;
      if (slot.crosses) note(message, step.messages[i], typical.times.messages[i]);
    });
    for (std::size_t at = 0; at < step.operationWaits.size(); ++at) {
      const Stall stall{.worker = JobRank(at / shape.operations), .operation = static_cast<std::int32_t>(at % shape.operations)};
      note(stall, step.operationWaits[at], typical.times.operationWaits[at]);
    }
  }
  return stalls;
}

JobTimes ownTimes(const JobShape& shape, const Job& job, std::size_t step, const TypicalTimes& typical, const std::vector<Stall>& stalls) {
  const JobStep& own = job.steps[step];
  JobTimes times = typical.times;
  times.actions = own.actions;
  times.operations = own.operations;
  if (job.timedMessages) {
    for (std::size_t i = 0; i < times.messages.size(); ++i) {
      if (own.messages[i] >= 0) times.messages[i] = own.messages[i];
    }
  }
  for (const Stall& stall : stalls) {
    if (stall.step != step) continue;
    if (stall.operation >= 0)
      times.operationWaits[stall.worker.index() * shape.operations + static_cast<std::size_t>(stall.operation)] += stall.lost;
    else if (!stall.message)
      times.waits[static_cast<std::size_t>(stall.slot)] += stall.lost;
    else if (!job.timedMessages)
      times.messages[static_cast<std::size_t>(stall.slot)] += stall.lost;
  }
  return times;
}

JobTimes measuredTimes(const JobShape& shape, const Job& job, std::size_t step, const TypicalTimes& typical) {
  const JobStep& own = job.steps[step];
  JobTimes times = typical.times;
  times.actions = own.actions;
  times.operations = own.operations;
  forSlots(shape, [&](std::size_t i, std::size_t, const JobShape::Slot&) {
    if (own.waits[i] >= 0) times.waits[i] = own.waits[i];
    // A message that was there in time does not delay.
    times.messages[i] = std::max<Ns>(0, own.messages[i]);
  });
  for (std::size_t at = 0; at < times.operationWaits.size(); ++at) times.operationWaits[at] = std::max<Ns>(0, own.operationWaits[at]);
  return times;
}

std::vector<ReplayError> replayErrors(const JobShape& shape, const Job& job, const TypicalTimes& typical) {
  const std::vector<Stall> stalls = stallsOf(shape, job, typical);
  std::vector<ReplayError> errors;
  JobReplay replayed, measured;
  for (std::size_t k = 0; k < job.steps.size(); ++k) {
    replayJob(shape, job, ownTimes(shape, job, k, typical, stalls), replayed);
    replayJob(shape, job, measuredTimes(shape, job, k, typical), measured);
    ReplayError error{job.steps[k].makespan, replayed.makespan, 0, 0};
    if (shape.allSlots() > 0 && error.measured > 0) {
      error.makespan = static_cast<double>(error.replayed - error.measured) / static_cast<double>(error.measured);
      const Ns first = *std::ranges::min_element(replayed.start), measuredFirst = *std::ranges::min_element(measured.start);
      double sum = 0;
      for (std::size_t i = 0; i < replayed.start.size(); ++i)
        sum += static_cast<double>(abs((replayed.start[i] - first) - (measured.start[i] - measuredFirst)));
      error.start = sum / static_cast<double>(replayed.start.size()) / static_cast<double>(error.measured);
    }
    errors.push_back(error);
  }
  return errors;
}

namespace {

Trace actionsOf(const JobShape& shape, const JobReplay& replay, std::size_t copy) {
  Trace trace;
  trace.ranks = static_cast<int>(shape.ranks);
  for (std::size_t s = 0; s < shape.copySlots.size(); ++s) {
    const JobShape::Slot& slot = shape.copySlots[s];
    const std::size_t i = copy * shape.slotsOfCopy() + s;
    trace.spans.push_back(
        {slot.rank, *spanKind(slot.action.kind), slot.action.stage, slot.action.microbatch, slot.rank, 0, replay.start[i], replay.end[i]});
  }
  return trace;
}

}  // namespace

Trace traceOf(const JobShape& shape, const JobReplay& replay, std::size_t copy) {
  Trace trace = actionsOf(shape, replay, copy);
  normalize(trace);
  return trace;
}

Trace stepOf(const JobShape& shape, const Job& job, const JobTimes& times, const JobReplay& replay, std::size_t copy) {
  Trace trace = actionsOf(shape, replay, copy);
  for (std::size_t r = 0; r < shape.ranks; ++r) {
    const std::size_t begin = copy * shape.slotsOfCopy() + shape.begin[r], end = copy * shape.slotsOfCopy() + shape.begin[r + 1];
    if (begin == end) continue;
    const Ns first = replay.start[begin], last = replay.end[end - 1];
    for (std::size_t o = 0; o < shape.operations; ++o) {
      const std::size_t at = (copy * shape.ranks + r) * shape.operations + o;
      if (job.operations[o].after[r] < 0 || replay.operationEnd[at] <= replay.operationStart[at]) continue;
      const Ns start = std::max(replay.operationStart[at], replay.operationEnd[at] - std::max<Ns>(0, times.operations[at]));
      const NamedSpan operation{JobRank(r), job.operations[o].name, start, replay.operationEnd[at]};
      trace.spans.push_back(spanOf(operation, Rank(r), Stage(r), first, last));
    }
  }
  normalize(trace);
  return trace;
}

}  // namespace pw
