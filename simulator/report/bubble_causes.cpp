#include "simulator/report/bubble_causes.h"

#include <algorithm>
#include <cmath>

#include "simulator/report/program_view.h"
#include "simulator/report/ready_work.h"

namespace pw {

BubbleCause causeOf(Phase phase, bool message) {
  if (message) return BubbleCause::Message;
  switch (phase) {
    case Phase::Warmup: return BubbleCause::StartUp;
    case Phase::Steady: return BubbleCause::Imbalance;
    case Phase::Cooldown: break;
  }
  return BubbleCause::Drain;
}

std::vector<IdleByCause> idleByCause(const Explanation& explanation) {
  std::vector<IdleByCause> ranks(explanation.workReady.size());
  for (std::size_t r = 0; r < ranks.size(); ++r) ranks[r].workReady = explanation.workReady[r];
  for (const BubbleGroup& group : explanation.groups) ranks.at(group.rank.index()).of(causeOf(group.phase, group.message)) += group.idle;
  return ranks;
}

namespace {

/// Since when in each gap of a rank's row the memory limit holds back its next forward; a gap's end where it does not.
class Holds {
 public:
  Holds(const ProgramView& view, const CauseContext& context) : view_(view), context_(context), steps_(computeStepsOf(view)) {
    if (context.memoryLimit > 0 && context.memoryAt) ready_ = readyTimes(view, steps_);
  }

  [[nodiscard]] std::vector<Ns> ofRank(Rank rank) const {
    const std::vector<ComputeStep>& row = steps_.ofRank[rank.index()];
    std::vector<Ns> held(row.size());
    std::size_t forward = row.size();  // the first one after the gap's own action
    for (std::size_t i = row.size(); i-- > 0;) {
      const Ns start = i > 0 ? row[i - 1].end : steps_.first;
      held[i] = !ready_.empty() && forward < row.size() ? heldFrom(rank, start, row[i].start, row[forward].step) : row[i].start;
      if (view_.actionOf(row[i].step)->kind == ActionKind::Forward) forward = i;
    }
    return held;
  }
  [[nodiscard]] const std::vector<ComputeStep>& row(Rank rank) const { return steps_.ofRank[rank.index()]; }
  [[nodiscard]] Ns first() const { return steps_.first; }

 private:
  [[nodiscard]] Ns heldFrom(Rank rank, Ns start, Ns end, std::int32_t forward) const {
    const Ns from = std::max(start, ready_[static_cast<std::size_t>(forward)]);
    if (from >= end) return end;
    const StageCost& stage = view_.costs.stages[view_.actionOf(forward)->stage.index()];
    const Bytes needed = std::max(stage.activationBytes, stage.forwardPeak);
    return context_.memoryAt(rank, from) + needed > context_.memoryLimit ? from : end;
  }

  const ProgramView& view_;
  const CauseContext& context_;
  ComputeSteps steps_;
  std::vector<Ns> ready_;  ///< by step; empty: there is no limit
};

/// Adds up pieces of idle time, and keeps where the longest begins.
class Sums {
 public:
  void add(BubbleCause cause, Ns from, Ns time) {
    if (time <= 0) return;
    sum_.by.of(cause) += time;
    const auto i = static_cast<std::size_t>(cause);
    if (time > longest_[i]) longest_[i] = time, sum_.longestFrom[i] = from;
  }
  /// Of a cause of a gap that is held back since `held`.
  void add(const Segment& segment, Phase phase, Ns held, const std::vector<double>& slowness) {
    const Ns to = std::clamp(held, segment.from, segment.to);
    add(BubbleCause::MemoryLimit, to, segment.to - to);
    const bool message = isMessage(segment.doing);
    const double slow = message || slowness.empty() ? 1 : std::max(1.0, slowness[segment.rank.index()]);
    const Ns time = to - segment.from, fast(std::llround(static_cast<double>(time) / slow));
    add(causeOf(phase, message), segment.from, fast);
    add(BubbleCause::Straggler, segment.from, time - fast);
  }
  [[nodiscard]] CausedIdle& sum() { return sum_; }

 private:
  CausedIdle sum_;
  std::array<Ns, countOf<BubbleCause>()> longest_{};
};

}  // namespace

std::vector<CausedIdle> idleByCause(const Explanation& explanation, const Schedule& rows, const CostTable& costs, const Program& program,
                                    const Times& times, const CauseContext& context) {
  const ProgramView view{rows, costs, program, times};
  const Holds holds(view, context);
  std::vector<CausedIdle> ranks(explanation.workReady.size());
  auto bubble = explanation.bubbles.begin();
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const Rank rank(r);
    const std::vector<ComputeStep>& row = holds.row(rank);
    const std::vector<Ns> held = holds.ofRank(rank);
    Sums sums;
    for (std::size_t gap = 0; gap <= row.size(); ++gap) {
      const Ns start = gap > 0 ? row[gap - 1].end : holds.first();
      if (bubble == explanation.bubbles.end() || bubble->rank != rank || bubble->start != start) continue;
      for (const Segment& cause : bubble->causes)
        sums.add(cause, bubble->phase, gap < row.size() ? held[gap] : bubble->end, context.slowness);
      ++bubble;
    }
    ranks[r] = sums.sum();
    ranks[r].by.workReady = explanation.workReady[r];
  }
  return ranks;
}

}  // namespace pw
