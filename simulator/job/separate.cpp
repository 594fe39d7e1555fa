#include "simulator/job/separate.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "simulator/text/median.h"

namespace pw {
namespace {

/// Where an operation's worker and name are in `JobStep::operations`.
class OperationIndex {
 public:
  explicit OperationIndex(const Job& job) {
    for (std::size_t o = 0; o < job.operations.size(); ++o) index_[job.operations[o].name] = o;
  }
  [[nodiscard]] std::size_t of(const NamedSpan& span) const {
    const auto found = index_.find(span.name);
    return found == index_.end() ? index_.size() : found->second;
  }

 private:
  std::map<std::string, std::size_t, std::less<>> index_;
};

/// When a group's last worker started an operation, and when the last of them could have.
struct GroupArrival {
  Ns started = 0, ready = 0;
};

class Separator {
 public:
  Separator(const JobShape& shape, const Job& job, const StepSpans& spans, Ns first, JobStep& step)
      : shape_(shape), job_(job), spans_(spans), step_(step), free_(shape.workers, first), next_(spans.end) {}
  Slack run(const std::vector<NamedSpan>& operations);

 private:
  void addOperation(std::size_t operation, OperationTurn turn, const std::vector<const NamedSpan*>& spans);
  void addActions(Slack& slack);

  const JobShape& shape_;
  const Job& job_;
  const StepSpans& spans_;
  JobStep& step_;
  std::vector<Ns> free_;   ///< by worker: when it ended its last operation
  std::vector<Ns> begin_;  ///< by worker: when it ended those before its row
  std::vector<Ns> next_;   ///< by slot: when its rank had also done the operations that the row holds for
};

void Separator::addOperation(std::size_t operation, OperationTurn turn, const std::vector<const NamedSpan*>& spans) {
  const JobOperation& done = job_.operations[operation];
  const auto does = [&](std::size_t rank) { return done.after[rank] >= 0 && turnOf(job_, done, rank) == turn; };
  const auto slotBefore = [&](std::size_t worker) {
    const std::size_t rank = worker % shape_.ranks;
    return worker / shape_.ranks * shape_.slotsOfCopy() + shape_.begin[rank] + static_cast<std::size_t>(done.after[rank]) - 1;
  };
  std::map<std::size_t, GroupArrival> groups;
  Ns allReady = 0;  // of all workers: as long as one still works the others' hosts are not late, for they meet again
  for (const NamedSpan* span : spans) {
    const std::size_t worker = span->worker.index(), rank = worker % shape_.ranks;
    if (!does(rank)) continue;
    Ns ready = free_[worker];
    if (done.after[rank] > 0) ready = std::max(ready, next_[slotBefore(worker)]);
    allReady = std::max(allReady, ready);
    auto [at, isNew] = groups.try_emplace(groupOf(shape_, job_, done.group, span->worker), GroupArrival{span->start, ready});
    at->second.started = std::max(at->second.started, span->start);
    at->second.ready = std::max(at->second.ready, ready);
  }
  for (const NamedSpan* span : spans) {
    const std::size_t worker = span->worker.index();
    if (!does(worker % shape_.ranks)) continue;
    const GroupArrival& all = groups.at(groupOf(shape_, job_, done.group, span->worker));
    const std::size_t at = worker * shape_.operations + operation;
    step_.operations[at] = std::max<Ns>(0, span->end - all.started);
    step_.operationWaits[at] = std::max<Ns>(0, all.started - std::max(all.ready, allReady));
    free_[worker] = std::max(free_[worker], span->end);
    if (turn == OperationTurn::Within) next_[slotBefore(worker)] = std::max(next_[slotBefore(worker)], span->end);
  }
}

void Separator::addActions(Slack& slack) {
  for (std::size_t copy = 0, i = 0; copy < shape_.copies; ++copy) {
    const std::size_t base = copy * shape_.slotsOfCopy();
    for (std::size_t s = 0; s < shape_.slotsOfCopy(); ++s, ++i) {
      const JobShape::Slot& slot = shape_.copySlots[s];
      step_.actions[i] = spans_.end[i] - spans_.start[i];
      const bool isFirst = s == shape_.begin[slot.rank.index()];
      const Ns own = isFirst ? begin_[copy * shape_.ranks + slot.rank.index()] : next_[i - 1];
      step_.messages[i] = slot.crosses ? spans_.message[i] : kUnknownTime;
      Ns ready = own;
      if (slot.producer >= 0) {
        const std::size_t producer = base + static_cast<std::size_t>(slot.producer);
        // A program that waited for the reduction sends after it; one that did not has sent before.
        const Ns made = slot.crosses && spans_.held[producer] >= 0 && spans_.held[producer] <= spans_.start[i] ? spans_.held[producer]
                                                                                                               : spans_.end[producer];
        const bool timed = step_.messages[i] >= 0;
        if (slot.crosses && !timed && made >= own) {  // for what it waited after that cannot be told from one step
          step_.messages[i] = std::max<Ns>(0, spans_.start[i] - made);
          continue;
        }
        if (slot.crosses && !timed) slack[i] = own - made;
        ready = std::max(ready, made + (timed ? step_.messages[i] : 0));
      }
      if (spans_.start[i] >= own) step_.waits[i] = std::max<Ns>(0, spans_.start[i] - ready);
    }
  }
}

Slack Separator::run(const std::vector<NamedSpan>& operations) {
  step_.actions.assign(shape_.allSlots(), 0);
  step_.waits.assign(shape_.allSlots(), kUnknownTime);
  step_.messages.assign(shape_.allSlots(), kUnknownTime);
  step_.operations.assign(shape_.workers * shape_.operations, kUnknownTime);
  step_.operationWaits.assign(shape_.workers * shape_.operations, kUnknownTime);
  const OperationIndex index(job_);
  std::vector<std::vector<const NamedSpan*>> byOperation(shape_.operations + 1);
  for (const NamedSpan& span : operations) {
    if (span.worker.value >= 0 && span.worker.index() < shape_.workers) byOperation[index.of(span)].push_back(&span);
  }
  const auto addAll = [&](OperationTurn turn) {
    for (std::size_t o = 0; o < shape_.operations; ++o) addOperation(o, turn, byOperation[o]);
  };
  addAll(OperationTurn::Before);
  begin_ = free_;
  addAll(OperationTurn::Within);
  Slack slack(shape_.allSlots(), kUnknownTime);
  addActions(slack);
  addAll(OperationTurn::After);
  return slack;
}

/// How long the messages of a link, or of a kind where its link shows none, usually take, waits for the receiver's host included.
class UsualMessages {
 public:
  UsualMessages(const JobShape& shape, const Job& job) {
    std::map<Link, std::vector<Ns>> links;
    std::map<ActionKind, std::vector<Ns>> kinds;
    for (const JobStep& step : job.steps) {
      for (std::size_t i = 0; i < step.messages.size(); ++i) {
        if (step.messages[i] < 0) continue;
        const Action& action = shape.copySlots[i % shape.slotsOfCopy()].action;
        links[{action.stage, action.kind}].push_back(step.messages[i]);
        kinds[action.kind].push_back(step.messages[i]);
      }
    }
    for (auto& [link, times] : links) ofLink_[link] = *medianOf(std::move(times));
    for (auto& [kind, times] : kinds) ofKind_[kind] = *medianOf(std::move(times));
  }
  /// 0 where no message of the kind was waited for.
  [[nodiscard]] Ns of(const Action& receiver) const {
    if (const auto link = ofLink_.find({receiver.stage, receiver.kind}); link != ofLink_.end()) return link->second;
    const auto kind = ofKind_.find(receiver.kind);
    return kind == ofKind_.end() ? Ns{0} : kind->second;
  }

 private:
  using Link = std::pair<Stage, ActionKind>;
  std::map<Link, Ns> ofLink_;
  std::map<ActionKind, Ns> ofKind_;
};

}  // namespace

Slack separate(const JobShape& shape, const Job& job, const StepSpans& spans, const std::vector<NamedSpan>& operations, Ns first,
               JobStep& step) {
  return Separator(shape, job, spans, first, step).run(operations);
}

void separateMessages(const JobShape& shape, const std::vector<Slack>& slacks, Job& job) {
  if (job.timedMessages) return;
  const UsualMessages usualMessages(shape, job);
  for (std::size_t k = 0; k < job.steps.size(); ++k) {
    JobStep& step = job.steps[k];
    for (std::size_t i = 0; i < slacks[k].size(); ++i) {
      const Ns slack = slacks[k][i];
      if (slack < 0 || step.waits[i] <= 0 || slack >= usualMessages.of(shape.copySlots[i % shape.slotsOfCopy()].action)) continue;
      step.messages[i] = slack + std::exchange(step.waits[i], kUnknownTime);
    }
  }
  using Place = std::pair<Rank, ActionKind>;
  std::map<Place, std::vector<Ns>> known;
  std::map<Place, std::size_t> all;
  const auto placeOf = [&](std::size_t i) {
    const JobShape::Slot& slot = shape.copySlots[i % shape.slotsOfCopy()];
    return Place{slot.rank, slot.action.kind};
  };
  for (const JobStep& step : job.steps) {
    for (std::size_t i = 0; i < step.waits.size(); ++i) {
      ++all[placeOf(i)];
      if (step.waits[i] >= 0) known[placeOf(i)].push_back(step.waits[i]);
    }
  }
  std::map<Place, Ns> usual;
  for (const auto& [place, waits] : known) {
    if (4 * waits.size() >= all[place]) usual[place] = *upperMedianOf(waits);
  }
  for (JobStep& step : job.steps) {
    for (std::size_t i = 0; i < step.waits.size(); ++i) {
      const auto found = usual.find(placeOf(i));
      if (found == usual.end())
        step.waits[i] = kUnknownTime;  // seen too rarely to be usual
      else if (step.messages[i] >= 0)
        step.messages[i] = std::max<Ns>(0, step.messages[i] - found->second);
    }
  }
}

}  // namespace pw
