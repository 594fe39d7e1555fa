#include "simulator/job/replay_path.h"

#include <algorithm>
#include <cstddef>
#include <optional>

namespace pw {
namespace {

class Walk {
 public:
  Walk(const JobShape& shape, const Job& job, const JobTimes& times, const JobReplay& replay)
      : shape_(shape), job_(job), times_(times), replay_(replay) {
    path_.byRank.assign(shape.ranks, 0);
  }
  ReplayPath run();

 private:
  [[nodiscard]] OperationTurn turn(std::size_t worker, std::size_t operation) const;
  [[nodiscard]] std::size_t slotBefore(std::size_t worker, std::size_t operation) const;
  [[nodiscard]] std::optional<std::size_t> heldBy(std::size_t slot, Ns ready, bool message) const;
  [[nodiscard]] bool does(std::size_t worker, std::size_t operation) const;
  void add(const std::string& kind, std::size_t worker, Ns time);
  void walkOperations(std::size_t worker, std::size_t operation);
  void walkActions(std::size_t slot);
  void walkBefore(std::size_t worker, Ns ready);

  const JobShape& shape_;
  const Job& job_;
  const JobTimes& times_;
  const JobReplay& replay_;
  ReplayPath path_;
};

OperationTurn Walk::turn(std::size_t worker, std::size_t operation) const {
  return turnOf(job_, job_.operations[operation], worker % shape_.ranks);
}

/// After which an operation that is not before its row comes.
std::size_t Walk::slotBefore(std::size_t worker, std::size_t operation) const {
  const std::size_t rank = worker % shape_.ranks;
  return worker / shape_.ranks * shape_.slotsOfCopy() + shape_.begin[rank] +
         static_cast<std::size_t>(job_.operations[operation].after[rank]) - 1;
}

/// The operation within the row after a slot that its rank, or its message, waits for until then; nothing where the action itself ends
/// then.
std::optional<std::size_t> Walk::heldBy(std::size_t slot, Ns ready, bool message) const {
  const std::size_t s = slot % shape_.slotsOfCopy();
  const std::size_t worker = slot / shape_.slotsOfCopy() * shape_.ranks + shape_.copySlots[s].rank.index();
  if (replay_.end[slot] == ready) return std::nullopt;
  for (std::size_t k = shape_.within[s].size(); k-- > 0;) {
    const auto o = static_cast<std::size_t>(shape_.within[s][k]);
    const bool holds = !message || job_.operations[o].holdsMessage;
    if (holds && does(worker, o) && replay_.operationEnd[worker * shape_.operations + o] == ready) return o;
  }
  return std::nullopt;
}

bool Walk::does(std::size_t worker, std::size_t operation) const {
  return job_.operations[operation].after[worker % shape_.ranks] >= 0 && times_.operations[worker * shape_.operations + operation] >= 0;
}

void Walk::add(const std::string& kind, std::size_t worker, Ns time) {
  if (time <= 0) return;
  path_.byKind[kind] += time;
  path_.byRank[worker % shape_.ranks] += time;
}

/// From the end of an operation back to an action, or to the start of the step.
void Walk::walkOperations(std::size_t worker, std::size_t operation) {
  for (;;) {
    const JobOperation& done = job_.operations[operation];
    add(kindOf(done), worker, times_.operations[worker * shape_.operations + operation]);
    const std::size_t group = groupOf(shape_, job_, done.group, JobRank(worker));
    std::size_t last = worker;  // of its group to come
    for (std::size_t w = 0; w < shape_.workers; ++w) {
      if (done.group == OperationGroup::Alone || !does(w, operation) || groupOf(shape_, job_, done.group, JobRank(w)) != group) continue;
      if (replay_.operationStart[w * shape_.operations + operation] > replay_.operationStart[last * shape_.operations + operation])
        last = w;
    }
    worker = last;
    const std::size_t at = worker * shape_.operations + operation;
    add(kWaitKind, worker, times_.operationWaits[at]);
    const Ns ready = replay_.operationStart[at] - times_.operationWaits[at];
    const OperationTurn own = turn(worker, operation);
    std::optional<std::size_t> previous;
    for (std::size_t o = 0; o < operation; ++o) {
      const bool isOfTurn =
          turn(worker, o) == own && (own != OperationTurn::Within || slotBefore(worker, o) == slotBefore(worker, operation));
      if (isOfTurn && does(worker, o) && replay_.operationEnd[worker * shape_.operations + o] == ready) previous = o;
    }
    if (previous) {
      operation = *previous;
      continue;
    }
    if (own == OperationTurn::Before) return;
    if (done.after[worker % shape_.ranks] <= 0) return walkBefore(worker, ready);
    const std::size_t slot = slotBefore(worker, operation);
    if (replay_.end[slot] == ready) return walkActions(slot);
    const std::optional<std::size_t> held = own == OperationTurn::After ? heldBy(slot, ready, false) : std::nullopt;
    if (!held) return walkBefore(worker, ready);
    operation = *held;
  }
}

void Walk::walkBefore(std::size_t worker, Ns ready) {
  for (std::size_t o = shape_.operations; o-- > 0;) {
    if (turn(worker, o) == OperationTurn::Before && does(worker, o) && replay_.operationEnd[worker * shape_.operations + o] == ready)
      return walkOperations(worker, o);
  }
}

/// From the end of an action back.
void Walk::walkActions(std::size_t slot) {
  for (;;) {
    const std::size_t copy = slot / shape_.slotsOfCopy(), base = copy * shape_.slotsOfCopy();
    const JobShape::Slot& done = shape_.copySlots[slot - base];
    const std::size_t worker = copy * shape_.ranks + done.rank.index();
    add(std::string(letters(done.action.kind)), worker, times_.actions[slot]);
    add(kWaitKind, worker, times_.waits[slot]);
    const Ns ready = replay_.start[slot] - times_.waits[slot];
    const bool isFirst = slot - base == shape_.begin[done.rank.index()];
    if (!isFirst && replay_.next[slot - 1] == ready) {
      if (const auto held = heldBy(slot - 1, ready, false)) return walkOperations(worker, *held);
      --slot;
      continue;
    }
    const std::size_t producer = base + static_cast<std::size_t>(std::max(0, done.producer));
    const Ns message = done.crosses ? times_.messages[slot] : 0;
    const Ns left = done.crosses ? replay_.left[producer] : replay_.end[producer];
    if (done.producer < 0 || left + message != ready) return walkBefore(worker, ready);
    add(std::string(letters(done.action.kind == ActionKind::Forward ? ActionKind::SendForward : ActionKind::SendBackward)), worker,
        message);
    slot = producer;
    const JobShape::Slot& made = shape_.copySlots[producer - base];
    if (const auto held = heldBy(producer, left, true)) return walkOperations(copy * shape_.ranks + made.rank.index(), *held);
  }
}

ReplayPath Walk::run() {
  std::optional<std::size_t> last;  // operation of a worker
  for (std::size_t at = 0; at < replay_.operationEnd.size(); ++at) {
    if (replay_.operationEnd[at] == replay_.step && does(at / shape_.operations, at % shape_.operations) &&
        (!last || at / shape_.operations == *last / shape_.operations))
      last = at;
  }
  if (last) {
    walkOperations(*last / shape_.operations, *last % shape_.operations);
  } else if (!replay_.end.empty()) {
    walkActions(static_cast<std::size_t>(std::ranges::max_element(replay_.end) - replay_.end.begin()));
  }
  return std::move(path_);
}

}  // namespace

ReplayPath pathOf(const JobShape& shape, const Job& job, const JobTimes& times, const JobReplay& replay) {
  return Walk(shape, job, times, replay).run();
}

}  // namespace pw
