#include <algorithm>
#include <set>

#include "engine/executor.h"
#include "engine/ops.h"
#include "schedules/generate.h"

namespace pw {
namespace {

/// What an action receives: values for a forward, gradients for a backward; nothing for W.
std::optional<Direction> intake(ActionKind kind) {
  if (kind == ActionKind::Forward) return Direction::Forward;
  if (makesGradient(kind)) return Direction::Backward;
  return std::nullopt;
}

/// The compute action of a row that uses what this RECV brings, or made what this SEND sends: its kind is F, or B or I, whichever the row
/// has.
Action computeOf(const Action& message, const std::set<Action>& computes) {
  const bool forward = message.kind == ActionKind::RecvForward || message.kind == ActionKind::SendForward;
  for (const ActionKind kind : {ActionKind::Forward, ActionKind::Backward, ActionKind::BackwardInput}) {
    if ((kind == ActionKind::Forward) != forward) continue;
    const Action action{message.stage, kind, message.microbatch};
    if (computes.contains(action)) return action;
  }
  return message;
}

Action plain(Action action) {
  action.overlapsNext = false;
  return action;
}

/// The row as compute actions, with the ops before and after each.
class Row {
 public:
  Row(const Plan& plan, Rank rank, const Exchange& exchange, bool evaluation) : plan_(plan), exchange_(exchange) {
    for (const Action& action : plan.schedule.rows.at(rank.index())) {
      if (isCompute(action.kind) && (!evaluation || action.kind == ActionKind::Forward)) computes_.push_back(plain(action));
    }
    known_.insert(computes_.begin(), computes_.end());
    before_.resize(computes_.size() + 1);
    after_.resize(computes_.size() + 1);
    std::size_t next = 0;  // compute actions so far
    for (const Action& action : plan.schedule.rows[rank.index()]) {
      if (isCompute(action.kind)) next += known_.contains(plain(action)) ? 1 : 0;
      if (isReceive(action.kind)) receive(computeOf(action, known_), next);
      if (isSend(action.kind)) send(computeOf(action, known_), next);
      if (action.kind == ActionKind::ReduceGrad && !evaluation) after_[next].push_back({Op::Kind::Reduce, action});
    }
    addMissing();
  }

  [[nodiscard]] std::vector<Op> ops() const {
    std::vector<Op> ops = after_[0];
    const Shape shape = shapeOf(plan_.schedule);
    int cycle = 0;
    const auto barriersUpTo = [&](int to) {
      for (; plan_.schedule.lockstep && cycle < to; ++cycle) ops.push_back({Op::Kind::Barrier, kIdle});
    };
    for (std::size_t i = 0; i < computes_.size(); ++i) {
      if (plan_.schedule.lockstep) barriersUpTo(lockstepCycle(shape.ranks, computes_[i]));
      ops.insert(ops.end(), before_[i].begin(), before_[i].end());
      ops.push_back({Op::Kind::Compute, computes_[i]});
      ops.insert(ops.end(), after_[i + 1].begin(), after_[i + 1].end());
    }
    if (plan_.schedule.lockstep) barriersUpTo(lockstepCycles(shape));
    return ops;
  }

 private:
  /// `next`: compute actions that stand before the RECV or SEND.
  void receive(const Action& user, std::size_t next) {
    const auto direction = intake(user.kind);
    if (!direction || !known_.contains(user) || !exchange_.receives(user.stage, user.microbatch, *direction) ||
        !posted_.insert(user).second)
      return;
    before_[next == 0 ? 0 : next - 1].push_back({Op::Kind::Post, user});
  }

  void send(const Action& maker, std::size_t next) {
    const auto direction = intake(maker.kind);
    if (!direction || !known_.contains(maker) || !exchange_.sendsAway(maker.stage, maker.microbatch, *direction) ||
        !sent_.insert(maker).second)
      return;
    after_[next].push_back({Op::Kind::Send, maker});
  }

  /// Messages between stages that are not neighbours, or whose neighbour is on the same rank, have no action in the row.
  void addMissing() {
    for (std::size_t i = 0; i < computes_.size(); ++i) {
      receive(computes_[i], i);
      const auto direction = intake(computes_[i].kind);
      if (!direction || !exchange_.sendsAway(computes_[i].stage, computes_[i].microbatch, *direction) || !sent_.insert(computes_[i]).second)
        continue;
      after_[i + 1].insert(after_[i + 1].begin(), {Op::Kind::Send, computes_[i]});
    }
  }

  const Plan& plan_;
  const Exchange& exchange_;
  std::vector<Action> computes_;
  std::set<Action> known_, posted_, sent_;
  std::vector<std::vector<Op>> before_, after_;  // after_[i + 1]: after compute action i
};

}  // namespace

std::vector<Op> opsOf(const Plan& plan, Rank rank, const Exchange& exchange, bool evaluation) {
  return Row(plan, rank, exchange, evaluation).ops();
}

}  // namespace pw
