#include "simulator/report/explain.h"

#include <algorithm>
#include <cassert>
#include <map>
#include <tuple>
#include <utility>

#include "simulator/report/phases.h"
#include "simulator/report/program_view.h"
#include "simulator/report/ready_work.h"
#include "simulator/step/compile.h"
#include "simulator/step/execute.h"
#include "simulator/step/path_bound.h"
#include "simulator/trace/span_kind.h"

namespace pw {
namespace {

class Explainer {
 public:
  Explainer(const Schedule& rows, const CostTable& costs, const Program& program, const Times& times, bool keepsBubbles);
  Explanation run();

 private:
  [[nodiscard]] Action producerOf(const MessageCost& message, Microbatch microbatch) const;
  [[nodiscard]] Microbatch microbatchOf(std::int32_t step, const MessageCost& message) const;

  void bind();
  [[nodiscard]] Segment messageSegment(Doing doing, std::int32_t message, Microbatch microbatch) const;
  void add(std::vector<Segment>& chain, Segment segment, Ns from, Ns to, Ns until) const;
  void addStep(std::vector<Segment>& chain, std::int32_t step, bool queued, Ns until) const;
  void follow(std::vector<Segment>& chain, std::int32_t step, Ns until) const;
  [[nodiscard]] std::pair<Action, Rank> awaitedBy(std::int32_t step) const;

  void findPath();
  void findBubbles();
  void addBubble(Rank rank, Ns from, Ns to, std::int32_t next);
  void groupCauses();
  [[nodiscard]] std::vector<RankPhases> phases() const;

  const ProgramView view_;
  std::vector<Binding> bindings_;  ///< by step
  std::vector<bool> split_;        ///< by stage and microbatch: its backward is I and W
  const ComputeSteps steps_;
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
    : view_{rows, costs, program, times}, split_(view_.pairs()), steps_(computeStepsOf(view_)), keepsBubbles_(keepsBubbles) {
  for (const auto& row : rows.rows) {
    for (const Action& a : row) {
      if (a.kind == ActionKind::BackwardInput) split_[view_.pairOf(a)] = true;
    }
  }
}

Action Explainer::producerOf(const MessageCost& message, Microbatch microbatch) const {
  const ActionKind backward =
      split_[view_.pairOf({message.from, ActionKind::Forward, microbatch})] ? ActionKind::BackwardInput : ActionKind::Backward;
  return {message.from, message.backward ? backward : ActionKind::Forward, microbatch};
}

/// Of the message that leaves with this step.
Microbatch Explainer::microbatchOf(std::int32_t step, const MessageCost& message) const {
  if (view_.onChannel(step)) return view_.originOf(step).microbatch;
  const Action* action = view_.actionOf(step);
  const Action* partner = view_.partnerOf(step);
  const bool second = partner != nullptr && (action->stage != message.from || (action->kind == ActionKind::Forward) == message.backward);
  return (second ? partner : action)->microbatch;
}

// ---- Bindings ----------------------------------------------------------------------------------------------------

/// One pass in the order of execution: sources come before their targets, so of equal sources on a lane the earliest stays. Unlike those of
/// `execute`, which takes any of several that determine a start, these do not depend on the order of the lanes' steps among each other: of
/// messages the one from the lowest lane counts.
void Explainer::bind() {
  bindings_.assign(view_.program.origin.size(), {});
  std::vector<std::int32_t> previous(view_.program.laneBegin.size() - 1, kNoStep);
  for (std::int32_t step = 0; step < static_cast<std::int32_t>(bindings_.size()); ++step) {
    Binding& own = bindings_[static_cast<std::size_t>(step)];
    std::int32_t& before = previous[static_cast<std::size_t>(view_.laneOf(step))];
    // A busy rank did not wait; a message that was sent at that moment waited for its sender rather than for the channel.
    if (before != kNoStep && view_.endOf(before) == view_.startOf(step) && (!view_.onChannel(step) || own.step == kNoStep))
      own = {before, 0};
    before = step;
    for (std::int32_t e = view_.program.steps[static_cast<std::size_t>(step)].firstEdge;
         e < view_.program.steps[static_cast<std::size_t>(step) + 1].firstEdge; ++e) {
      const Edge& edge = view_.program.edges[static_cast<std::size_t>(e)];
      if (view_.endOf(step) + view_.program.delays[static_cast<std::size_t>(edge.delay)] != view_.startOf(edge.to)) continue;
      Binding& other = bindings_[static_cast<std::size_t>(edge.to)];
      if (other.step == kNoStep || view_.laneOf(step) < view_.laneOf(other.step)) other = {step, edge.delay};
    }
  }
}

std::vector<RankPhases> Explainer::phases() const {
  Trace trace;
  trace.ranks = view_.program.ranks;
  const auto add = [&](Rank rank, const ComputeStep& done, const Action& a) {
    trace.spans.push_back({rank, *spanKind(a.kind), a.stage, a.microbatch, rank, 0, done.start, done.end});
  };
  for (std::size_t rank = 0; rank < steps_.ofRank.size(); ++rank) {
    for (const ComputeStep& done : steps_.ofRank[rank]) {
      add(Rank(rank), done, *view_.actionOf(done.step));
      if (const Action* partner = view_.partnerOf(done.step)) add(Rank(rank), done, *partner);
    }
  }
  return phasesOf(trace);
}

// ---- Chains ------------------------------------------------------------------------------------------------------

Segment Explainer::messageSegment(Doing doing, std::int32_t message, Microbatch microbatch) const {
  const MessageCost& m = view_.costs.messages[static_cast<std::size_t>(message)];
  return {doing,
          view_.rows.placement.rankOf(m.from, microbatch),
          view_.rows.placement.rankOf(m.to, microbatch),
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
  const Origin& origin = view_.originOf(step);
  if (view_.endOf(step) <= until || view_.endOf(step) == view_.startOf(step)) return;
  Segment segment;
  if (view_.onChannel(step)) {
    segment = messageSegment(queued ? Doing::Queue : Doing::Transfer, origin.index, origin.microbatch);
  } else {
    segment.rank = segment.peer = Rank(view_.laneOf(step));
    if (origin.index < 0) segment.doing = origin.index == kLoadStep ? Doing::Load : Doing::Store;
    if (const Action* action = view_.actionOf(step)) segment.action = *action;
    if (const Action* partner = view_.partnerOf(step)) segment.partner = *partner;
  }
  add(chain, segment, view_.startOf(step), view_.endOf(step), until);
}

/// What the step waited for since `until`, last first. Every step after time 0 waited for something earlier in the order of execution, so
/// this terminates.
void Explainer::follow(std::vector<Segment>& chain, std::int32_t step, Ns until) const {
  while (view_.startOf(step) > until) {
    const Binding& binding = bindings_[static_cast<std::size_t>(step)];
    assert(binding.step != kNoStep);
    if (binding.delay > 0) {
      const MessageCost& m = view_.costs.messages[static_cast<std::size_t>(binding.delay) - 1];
      add(chain, messageSegment(Doing::Latency, binding.delay - 1, microbatchOf(binding.step, m)), view_.endOf(binding.step),
          view_.startOf(step), until);
    }
    addStep(chain, binding.step, view_.onChannel(step) && view_.onChannel(binding.step), until);
    step = binding.step;
  }
}

/// What the step waited for: the producer of the message that came last, or the action that ended last; the step's own action where there
/// is neither.
std::pair<Action, Rank> Explainer::awaitedBy(std::int32_t step) const {
  const auto senderOf = [&](std::int32_t message, Microbatch microbatch) {
    const MessageCost& m = view_.costs.messages[static_cast<std::size_t>(message)];
    return std::pair(producerOf(m, microbatch), view_.rows.placement.rankOf(m.from, microbatch));
  };
  std::int32_t at = step;
  while (bindings_[static_cast<std::size_t>(at)].step != kNoStep) {
    const Binding& binding = bindings_[static_cast<std::size_t>(at)];
    if (binding.delay > 0)
      return senderOf(binding.delay - 1, microbatchOf(binding.step, view_.costs.messages[static_cast<std::size_t>(binding.delay) - 1]));
    if (view_.onChannel(binding.step)) return senderOf(view_.originOf(binding.step).index, view_.originOf(binding.step).microbatch);
    if (const Action* action = view_.actionOf(binding.step)) return {*action, Rank(view_.laneOf(binding.step))};
    at = binding.step;
  }
  return {*view_.actionOf(step), Rank(view_.laneOf(step))};  // loaded from the host since time 0
}

// ---- Answers -----------------------------------------------------------------------------------------------------

void Explainer::findPath() {
  CriticalPath& path = result_.path;
  addStep(path.segments, steps_.last.step, false, steps_.first);
  follow(path.segments, steps_.last.step, steps_.first);
  std::reverse(path.segments.begin(), path.segments.end());
  path.compute.resize(steps_.ofRank.size());
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
  if (next != kNoStep) {
    bubble.next = *view_.actionOf(next);
    std::tie(bubble.awaited, bubble.awaitedRank) = awaitedBy(next);
  } else {
    bubble.awaited = *view_.actionOf(steps_.last.step);
    bubble.awaitedRank = Rank(view_.laneOf(steps_.last.step));
    addStep(bubble.causes, steps_.last.step, false, from);
  }
  follow(bubble.causes, next == kNoStep ? steps_.last.step : next, from);
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
  for (std::size_t rank = 0; rank < steps_.ofRank.size(); ++rank) {
    Ns end = steps_.first;
    for (const ComputeStep& done : steps_.ofRank[rank]) {
      addBubble(Rank(rank), end, done.start, done.step);
      end = done.end;
    }
    addBubble(Rank(rank), end, steps_.last.end, kNoStep);
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
  if (steps_.last.step == kNoStep) return {};
  phases_ = phases();
  findPath();
  findBubbles();
  result_.workReady = readyWork(view_, steps_);
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
