#include "simulator/report/explain.h"
#include "simulator/report/phases.h"
#include "simulator/step/compile.h"
#include "simulator/step/execute.h"

#include <algorithm>
#include <cassert>
#include <map>
#include <tuple>
#include <utility>

namespace pw {
namespace {

constexpr std::int32_t kNone = -1;

/// What a step waited for: the step `from`, and the message in flight between them (0: none), as in `Edge::delay`.
struct Binding {
  std::int32_t from = kNone;
  std::int32_t delay = 0;
};

/// A compute action's step on its rank's lane.
struct Done {
  std::int32_t step = kNone;
  Ns start = 0, end = 0;
};

class Explainer {
 public:
  Explainer(const Schedule& rows, const CostTable& costs, const Program& program, const Times& times, bool keepsBubbles);
  Explanation run();

 private:
  [[nodiscard]] Ns startOf(std::int32_t step) const { return times_.start[static_cast<std::size_t>(step)]; }
  [[nodiscard]] Ns endOf(std::int32_t step) const { return startOf(step) + p_.duration[static_cast<std::size_t>(step)]; }
  [[nodiscard]] std::int32_t laneOf(std::int32_t step) const { return p_.steps[static_cast<std::size_t>(step)].lane; }
  [[nodiscard]] const Origin& originOf(std::int32_t step) const { return p_.origin[static_cast<std::size_t>(step)]; }
  [[nodiscard]] bool onRank(std::int32_t step) const { return laneOf(step) < p_.ranks; }
  [[nodiscard]] bool onChannel(std::int32_t step) const { return !onRank(step) && laneOf(step) < p_.ranks + p_.channels; }
  [[nodiscard]] std::size_t pairOf(const Action& a) const {
    return a.stage.index() * static_cast<std::size_t>(rows_.microbatches) + a.microbatch.index();
  }
  [[nodiscard]] const Action* actionOf(std::int32_t step) const;
  [[nodiscard]] const Action* partnerOf(std::int32_t step) const;
  [[nodiscard]] Action producerOf(const MessageCost& message, Microbatch microbatch) const;
  [[nodiscard]] Microbatch microbatchOf(std::int32_t step, const MessageCost& message) const;

  void bind();
  void listActions();
  [[nodiscard]] Segment messageSegment(Doing doing, std::int32_t message, Microbatch microbatch) const;
  void add(std::vector<Segment>& chain, Segment segment, Ns from, Ns to, Ns until) const;
  void addStep(std::vector<Segment>& chain, std::int32_t step, bool queued, Ns until) const;
  void follow(std::vector<Segment>& chain, std::int32_t step, Ns until) const;
  [[nodiscard]] std::pair<Action, Rank> awaitedBy(std::int32_t step) const;

  void findPath();
  void findBubbles();
  [[nodiscard]] std::vector<std::int32_t> stepsOfActions(ActionKind first, ActionKind second) const;
  [[nodiscard]] std::vector<Ns> arrivals() const;
  [[nodiscard]] std::vector<Ns> receipts() const;
  void findReadyWork();
  void addBubble(Rank rank, Ns from, Ns to, std::int32_t next);
  void groupCauses();
  [[nodiscard]] std::vector<RankPhases> phases() const;

  const Schedule& rows_;
  const CostTable& costs_;
  const Program& p_;
  const Times& times_;
  std::vector<Binding> bindings_;        ///< by step
  std::vector<bool> split_;              ///< by stage and microbatch: its backward is I and W
  std::vector<std::vector<Done>> done_;  ///< by rank
  Done last_;                            ///< the action that ends last
  Ns first_ = 0;                         ///< start of the first
  std::vector<RankPhases> phases_;
  bool keepsBubbles_;
  /// Idle time of one rank, phase and cause.
  struct Idle {
    Ns sum = 0, longest = 0, longestFrom = 0;
  };
  std::map<std::tuple<Rank, Phase, Rank, bool>, Idle> idle_;  ///< by rank, phase, cause and whether it is a message
  Explanation result_;
};

Explainer::Explainer(const Schedule& rows, const CostTable& costs, const Program& program, const Times& times, bool keepsBubbles)
    : rows_(rows),
      costs_(costs),
      p_(program),
      times_(times),
      split_(costs.stages.size() * static_cast<std::size_t>(std::max(0, rows.microbatches))),
      keepsBubbles_(keepsBubbles) {
  for (const auto& row : rows.rows) {
    for (const Action& a : row) {
      if (a.kind == ActionKind::BackwardInput) split_[pairOf(a)] = true;
    }
  }
}

/// The (first) compute action of a step, or null.
const Action* Explainer::actionOf(std::int32_t step) const {
  if (!onRank(step) || originOf(step).index < 0) return nullptr;
  const Action& action = rows_.rows[static_cast<std::size_t>(laneOf(step))][static_cast<std::size_t>(originOf(step).index)];
  return isCompute(action.kind) ? &action : nullptr;
}

const Action* Explainer::partnerOf(std::int32_t step) const {
  const Action* action = actionOf(step);
  if (action == nullptr || !action->overlapsNext) return nullptr;
  const auto& row = rows_.rows[static_cast<std::size_t>(laneOf(step))];
  const bool slot = action != &row.back() && (action + 1)->kind == ActionKind::Backward;
  return slot ? action + 1 : nullptr;
}

Action Explainer::producerOf(const MessageCost& message, Microbatch microbatch) const {
  const ActionKind backward =
      split_[pairOf({message.from, ActionKind::Forward, microbatch})] ? ActionKind::BackwardInput : ActionKind::Backward;
  return {message.from, message.backward ? backward : ActionKind::Forward, microbatch};
}

/// Of the message that leaves with this step.
Microbatch Explainer::microbatchOf(std::int32_t step, const MessageCost& message) const {
  if (onChannel(step)) return originOf(step).microbatch;
  const Action* action = actionOf(step);
  const Action* partner = partnerOf(step);
  const bool second = partner != nullptr && (action->stage != message.from || (action->kind == ActionKind::Forward) == message.backward);
  return (second ? partner : action)->microbatch;
}

// ---- Bindings ----------------------------------------------------------------------------------------------------

/// One pass in the order of execution: sources come before their targets, so of equal sources on a lane the earliest stays.
void Explainer::bind() {
  bindings_.assign(p_.origin.size(), {});
  std::vector<std::int32_t> previous(p_.laneBegin.size() - 1, kNone);
  for (std::int32_t step = 0; step < static_cast<std::int32_t>(bindings_.size()); ++step) {
    Binding& own = bindings_[static_cast<std::size_t>(step)];
    std::int32_t& before = previous[static_cast<std::size_t>(laneOf(step))];
    // A busy rank did not wait; a message that was sent at that moment waited for its sender rather than for the channel.
    if (before != kNone && endOf(before) == startOf(step) && (!onChannel(step) || own.from == kNone)) own = {before, 0};
    before = step;
    for (std::int32_t e = p_.steps[static_cast<std::size_t>(step)].firstEdge; e < p_.steps[static_cast<std::size_t>(step) + 1].firstEdge;
         ++e) {
      const Edge& edge = p_.edges[static_cast<std::size_t>(e)];
      if (endOf(step) + p_.delays[static_cast<std::size_t>(edge.delay)] != startOf(edge.to)) continue;
      Binding& other = bindings_[static_cast<std::size_t>(edge.to)];
      if (other.from == kNone || laneOf(step) < laneOf(other.from)) other = {step, edge.delay};
    }
  }
}

void Explainer::listActions() {
  done_.resize(static_cast<std::size_t>(p_.ranks));
  bool any = false;
  for (std::int32_t rank = 0; rank < p_.ranks; ++rank) {
    for (const std::int32_t step : p_.stepsOf(rank)) {
      if (actionOf(step) == nullptr) continue;
      const Done done{step, startOf(step), endOf(step)};
      done_[static_cast<std::size_t>(rank)].push_back(done);
      first_ = any ? std::min(first_, done.start) : done.start;
      if (!any || done.end > last_.end || (done.end == last_.end && laneOf(last_.step) == rank)) last_ = done;
      any = true;
    }
  }
}

std::vector<RankPhases> Explainer::phases() const {
  Trace trace;
  trace.ranks = p_.ranks;
  const auto add = [&](Rank rank, const Done& done, const Action& a) {
    const auto kind = static_cast<SpanKind>(a.kind);  // the first kinds of spans are those of actions
    trace.spans.push_back({rank, kind, a.stage, a.microbatch, rank, 0, done.start, done.end});
  };
  for (std::size_t rank = 0; rank < done_.size(); ++rank) {
    for (const Done& done : done_[rank]) {
      add(Rank(rank), done, *actionOf(done.step));
      if (const Action* partner = partnerOf(done.step)) add(Rank(rank), done, *partner);
    }
  }
  return phasesOf(trace);
}

// ---- Chains ------------------------------------------------------------------------------------------------------

Segment Explainer::messageSegment(Doing doing, std::int32_t message, Microbatch microbatch) const {
  const MessageCost& m = costs_.messages[static_cast<std::size_t>(message)];
  return {doing,
          rows_.placement.rankOf(m.from, microbatch),
          rows_.placement.rankOf(m.to, microbatch),
          producerOf(m, microbatch),
          std::nullopt,
          0,
          0};
}

/// Adds the part of a segment after `until`, if there is any.
void Explainer::add(std::vector<Segment>& chain, Segment segment, Ns from, Ns to, Ns until) const {
  segment.from = std::max(from, until);
  segment.to = to;
  if (segment.from < segment.to) chain.push_back(segment);
}

void Explainer::addStep(std::vector<Segment>& chain, std::int32_t step, bool queued, Ns until) const {
  const Origin& origin = originOf(step);
  if (endOf(step) <= until || endOf(step) == startOf(step)) return;
  Segment segment;
  if (onChannel(step)) {
    segment = messageSegment(queued ? Doing::Queue : Doing::Transfer, origin.index, origin.microbatch);
  } else {
    segment.rank = segment.peer = Rank(laneOf(step));
    if (origin.index < 0) segment.doing = origin.index == kLoadStep ? Doing::Load : Doing::Store;
    if (const Action* action = actionOf(step)) segment.action = *action;
    if (const Action* partner = partnerOf(step)) segment.partner = *partner;
  }
  add(chain, segment, startOf(step), endOf(step), until);
}

/// What the step waited for since `until`, last first. Every step after time 0 waited for something earlier in the order of execution, so
/// this terminates.
void Explainer::follow(std::vector<Segment>& chain, std::int32_t step, Ns until) const {
  while (startOf(step) > until) {
    const Binding& binding = bindings_[static_cast<std::size_t>(step)];
    assert(binding.from != kNone);
    if (binding.delay > 0) {
      const MessageCost& m = costs_.messages[static_cast<std::size_t>(binding.delay) - 1];
      add(chain, messageSegment(Doing::Latency, binding.delay - 1, microbatchOf(binding.from, m)), endOf(binding.from), startOf(step),
          until);
    }
    addStep(chain, binding.from, onChannel(step) && laneOf(binding.from) == laneOf(step), until);
    step = binding.from;
  }
}

/// What the step waited for: the producer of the message that came last, or the action that ended last; the step's own action where there
/// is neither.
std::pair<Action, Rank> Explainer::awaitedBy(std::int32_t step) const {
  const auto senderOf = [&](std::int32_t message, Microbatch microbatch) {
    const MessageCost& m = costs_.messages[static_cast<std::size_t>(message)];
    return std::pair(producerOf(m, microbatch), rows_.placement.rankOf(m.from, microbatch));
  };
  std::int32_t at = step;
  while (bindings_[static_cast<std::size_t>(at)].from != kNone) {
    const Binding& binding = bindings_[static_cast<std::size_t>(at)];
    if (binding.delay > 0)
      return senderOf(binding.delay - 1, microbatchOf(binding.from, costs_.messages[static_cast<std::size_t>(binding.delay) - 1]));
    if (onChannel(binding.from)) return senderOf(originOf(binding.from).index, originOf(binding.from).microbatch);
    if (const Action* action = actionOf(binding.from)) return {*action, Rank(laneOf(binding.from))};
    at = binding.from;
  }
  return {*actionOf(step), Rank(laneOf(step))};  // loaded from the host since time 0
}

// ---- Answers -----------------------------------------------------------------------------------------------------

void Explainer::findPath() {
  CriticalPath& path = result_.path;
  addStep(path.segments, last_.step, false, first_);
  follow(path.segments, last_.step, first_);
  std::reverse(path.segments.begin(), path.segments.end());
  path.compute.resize(done_.size());
  const auto account = [&](const Segment& s) -> Ns& {
    CriticalPath::Share& share = path.compute[s.rank.index()];
    switch (s.doing) {
      case Doing::Load:
      case Doing::Store: return share.host;
      case Doing::Transfer: return path.transfer;
      case Doing::Queue: return path.queue;
      case Doing::Latency: return path.latency;
      case Doing::Compute: break;
    }
    if (s.partner) return share.slot;
    if (s.action.kind == ActionKind::Forward) return share.forward;
    if (s.action.kind == ActionKind::Backward) return share.backward;
    return s.action.kind == ActionKind::BackwardInput ? share.backwardInput : share.backwardWeight;
  };
  for (const Segment& segment : path.segments) account(segment) += segment.to - segment.from;
}

/// `next`: the step that starts at `to`, or none at the end of the row.
void Explainer::addBubble(Rank rank, Ns from, Ns to, std::int32_t next) {
  if (from >= to) return;
  Bubble bubble;
  bubble.rank = rank;
  bubble.start = from;
  bubble.end = to;
  const RankPhases& phases = phases_[rank.index()];
  bubble.phase = from < phases.steady ? Phase::Warmup : from < phases.cooldown ? Phase::Steady : Phase::Cooldown;
  if (next != kNone) {
    bubble.next = *actionOf(next);
    std::tie(bubble.awaited, bubble.awaitedRank) = awaitedBy(next);
  } else {
    bubble.awaited = *actionOf(last_.step);
    bubble.awaitedRank = Rank(laneOf(last_.step));
    addStep(bubble.causes, last_.step, false, from);
  }
  follow(bubble.causes, next == kNone ? last_.step : next, from);
  std::reverse(bubble.causes.begin(), bubble.causes.end());
  for (const Segment& cause : bubble.causes) {
    Idle& idle = idle_[{bubble.rank, bubble.phase, cause.rank, isMessage(cause.doing)}];
    const Ns time = cause.to - cause.from;
    idle.sum += time;
    if (time > idle.longest) idle.longest = time, idle.longestFrom = cause.from;
  }
  if (keepsBubbles_) result_.bubbles.push_back(std::move(bubble));
}

void Explainer::findBubbles() {
  for (std::size_t rank = 0; rank < done_.size(); ++rank) {
    Ns end = first_;
    for (const Done& done : done_[rank]) {
      addBubble(Rank(rank), end, done.start, done.step);
      end = done.end;
    }
    addBubble(Rank(rank), end, last_.end, kNone);
  }
}

/// By stage and microbatch the step of its action of one of two kinds, or none.
std::vector<std::int32_t> Explainer::stepsOfActions(ActionKind first, ActionKind second) const {
  std::vector<std::int32_t> steps(split_.size(), kNone);
  for (const auto& row : done_) {
    for (const Done& done : row) {
      for (const Action* action : {actionOf(done.step), partnerOf(done.step)}) {
        if (action != nullptr && (action->kind == first || action->kind == second)) steps[pairOf(*action)] = done.step;
      }
    }
  }
  return steps;
}

/// By step: when the messages that it takes from other ranks were there.
std::vector<Ns> Explainer::arrivals() const {
  std::vector<Ns> arrived(p_.origin.size(), first_);
  for (std::size_t step = 0; step < arrived.size(); ++step) {
    const auto source = static_cast<std::int32_t>(step);
    for (std::int32_t e = p_.steps[step].firstEdge; e < p_.steps[step + 1].firstEdge; ++e) {
      const Edge& edge = p_.edges[static_cast<std::size_t>(e)];
      if (laneOf(edge.to) == laneOf(source)) continue;
      Ns& time = arrived[static_cast<std::size_t>(edge.to)];
      time = std::max(time, endOf(source) + p_.delays[static_cast<std::size_t>(edge.delay)]);
    }
  }
  return arrived;
}

/// By stage, microbatch and direction: when the row's own receive of it was done, where it has one.
std::vector<Ns> Explainer::receipts() const {
  std::vector<Ns> received(2 * split_.size(), first_);
  for (std::int32_t rank = 0; rank < p_.ranks; ++rank) {
    for (const std::int32_t step : p_.stepsOf(rank)) {
      if (originOf(step).index < 0) continue;
      const Action& action = rows_.rows[static_cast<std::size_t>(rank)][static_cast<std::size_t>(originOf(step).index)];
      if (isReceive(action.kind)) received[2 * pairOf(action) + (isBackward(action.kind) ? 1 : 0)] = endOf(step);
    }
  }
  return received;
}

/// An action is ready when its messages and what its own rank computes for it are there. In a gap some work is ready from the earliest
/// such time of the actions after it.
void Explainer::findReadyWork() {
  const std::vector<std::int32_t> forward = stepsOfActions(ActionKind::Forward, ActionKind::Forward);
  const std::vector<std::int32_t> gradient = stepsOfActions(ActionKind::Backward, ActionKind::BackwardInput);
  std::vector<Ns> ready = arrivals();
  const std::vector<Ns> received = receipts();
  const auto needs = [&](std::int32_t step, std::int32_t input) {
    if (input != kNone && laneOf(input) == laneOf(step))
      ready[static_cast<std::size_t>(step)] = std::max(ready[static_cast<std::size_t>(step)], endOf(input));
  };
  std::vector<std::vector<const MessageCost*>> arriving(costs_.stages.size());
  for (const MessageCost& m : costs_.messages) arriving[m.to.index()].push_back(&m);
  for (const auto& row : done_) {
    for (const Done& done : row) {
      for (const Action* action : {actionOf(done.step), partnerOf(done.step)}) {
        if (action == nullptr) continue;
        const bool backward = isBackward(action->kind);
        if (backward) needs(done.step, (action->kind == ActionKind::BackwardWeight ? gradient : forward)[pairOf(*action)]);
        if (action->kind == ActionKind::BackwardWeight) continue;
        Ns& time = ready[static_cast<std::size_t>(done.step)];
        time = std::max(time, received[2 * pairOf(*action) + (backward ? 1 : 0)]);
        for (const MessageCost* m : arriving[action->stage.index()]) {
          if (m->backward == backward) needs(done.step, (backward ? gradient : forward)[pairOf({m->from, {}, action->microbatch})]);
        }
      }
    }
  }
  result_.workReady.assign(done_.size(), 0);
  for (std::size_t rank = 0; rank < done_.size(); ++rank) {
    Ns earliest = last_.end;
    for (std::size_t i = done_[rank].size(); i-- > 0;) {
      const Done& done = done_[rank][i];
      earliest = std::min(earliest, ready[static_cast<std::size_t>(done.step)]);
      const Ns before = i > 0 ? done_[rank][i - 1].end : first_;
      result_.workReady[rank] += std::max<Ns>(0, done.start - std::max(before, earliest));
    }
  }
}

void Explainer::groupCauses() {
  for (const auto& [key, idle] : idle_) {
    const auto& [rank, phase, cause, message] = key;
    result_.groups.push_back({rank, phase, cause, message, idle.sum, idle.longestFrom});
  }
  std::stable_sort(result_.groups.begin(), result_.groups.end(),
                   [](const BubbleGroup& a, const BubbleGroup& b) { return a.idle > b.idle; });
}

Explanation Explainer::run() {
  bind();
  listActions();
  if (last_.step == kNone) return {};
  phases_ = phases();
  findPath();
  findBubbles();
  findReadyWork();
  groupCauses();
  return std::move(result_);
}

}  // namespace

Explanation explain(const Schedule& rows, const CostTable& costs, const Program& program, const Times& times, bool keepsBubbles) {
  return Explainer(rows, costs, program, times, keepsBubbles).run();
}

Explanation explain(const Schedule& schedule, const CostTable& costs, Sending sending) {
  const Schedule rows = rowsOf(schedule, sending);
  const Program program = compile(rows, costs, sending);
  Times times;
  execute(program, times);
  return explain(rows, costs, program, times);
}

}  // namespace pw
