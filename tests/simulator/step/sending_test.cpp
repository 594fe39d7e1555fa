// The simulator against an independent event-by-event one, over random schedules and costs and every way of sending.

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "schedules/csv.h"
#include "schedules/error.h"
#include "schedules/generate.h"
#include "schedules/lower.h"
#include "simulator/report/compare.h"
#include "simulator/report/metrics.h"
#include "simulator/step/compile.h"
#include "simulator/step/execute.h"
#include "simulator/step/program.h"
#include "tests/schedules/random_schedules.h"
#include "tests/support/event_reference.h"
#include "tests/support/random_costs.h"
#include "tests/support/split_backward.h"

namespace pw {
namespace {

using test::draw;
using test::oneIn;

constexpr std::array kSendings{Sending::Overlapped, Sending::Posted, Sending::OneChannel, Sending::Blocking};

std::string_view said(Sending sending) {
  constexpr std::array<std::string_view, 4> kNames{"overlapped", "posted", "one channel", "blocking"};
  return kNames[static_cast<std::size_t>(sending)];
}

// ---- Random cases ------------------------------------------------------------------------------------------------

Schedule flattened(Schedule schedule) {
  for (auto& row : schedule.rows) {
    for (Action& action : row) action.overlapsNext = false;
  }
  return schedule;
}

/// Any generator on a shape of at most six ranks and fourteen microbatches, its backwards as they are, split, merged, or with all W last.
Schedule generatedSchedule(std::mt19937_64& random) {
  for (;;) {
    const Generator& generator =
        generators()[static_cast<std::size_t>(draw(random, 0, static_cast<std::int64_t>(generators().size()) - 1))];
    const int ranks = static_cast<int>(draw(random, 1, 6));
    const int chunks = oneIn(random, 4) ? static_cast<int>(draw(random, 1, 4)) : generator.chunks;
    const Shape shape{ranks, ranks * chunks, static_cast<int>(draw(random, 1, 14))};
    if (generator.refusal(shape)) continue;
    const Schedule schedule = generator.generate(shape);
    switch (draw(random, 0, 5)) {
      case 0: return test::splitBackward(schedule);
      case 1: return mergeBackward(schedule);
      case 2: return flattened(schedule);
      case 3: return schedule.lockstep ? schedule : test::splitBackward(flattened(schedule), test::Weights::Last);
      default: return schedule;
    }
  }
}

/// With sends and receives in a sound order for this way of sending, unless those do not matter.
Schedule randomRows(std::mt19937_64& random, Sending sending) {
  if (oneIn(random, 3)) {
    test::Wish wish;
    wish.lowered = sending != Sending::Overlapped || oneIn(random, 2);
    if (sending == Sending::Posted) wish.soundUnder = test::Transport::Buffered;
    if (sending == Sending::OneChannel) wish.soundUnder = test::Transport::OneChannel;
    return test::Grower(random, wish).grow();
  }
  const Schedule schedule = generatedSchedule(random);
  if (schedule.lockstep || (sending == Sending::Overlapped && oneIn(random, 2))) return schedule;
  return lower(schedule, static_cast<Lowering>(draw(random, 0, 2)));
}

/// Whether every stage that a message of this kind leaves or reaches has a SEND and a RECV for it, in both replicas.
bool isPosted(const Placement& placement, const MessageCost& message) {
  const auto crosses = [&](int stage) {
    const auto s = static_cast<std::size_t>(stage);
    return placement.rankOfStage[s] != placement.rankOfStage[s + 1] &&
           (!placement.bidirectional() || placement.mirrorOfStage[s] != placement.mirrorOfStage[s + 1]);
  };
  const auto [early, late] = std::minmax(message.from.value, message.to.value);
  return crosses(early) && crosses(late - 1);
}

/// Random costs with slots of their own time, memory of every kind, host transfers where they count, and messages of which all or none are
/// free (one without transfer and bytes does not wait for those before it, which the reference does not know). Where messages are
/// posted, only those that the rows have an end for, and seldom skips, which deadlock where a rank waits for their other end; on one
/// channel none, as their two ends may stand in different orders.
CostTable randomTable(std::mt19937_64& random, const Schedule& rows, Sending sending) {
  CostTable costs = test::randomCosts(random, rows);
  for (StageCost& stage : costs.stages) {
    stage.gradientBytes = draw<Bytes>(random, 0, 100);
    stage.optimizerBytes = draw<Bytes>(random, 0, 100);
    stage.freedByInput = draw<Bytes>(random, 0, stage.activationBytes);
    stage.addedByInput = stage.freedByInput > 0 ? 0 : draw<Bytes>(random, 0, 500);
  }
  for (std::size_t s = 1; s < costs.stages.size() && !rows.placement.bidirectional(); ++s) {
    if (rows.placement.rankOfStage[s - 1] == rows.placement.rankOfStage[s])
      costs.stages[s].sharedForWeight = oneIn(random, 3) ? 0 : draw<Bytes>(random, 0, heldForWeight(costs.stages[s]));
  }
  if (oneIn(random, 2)) {
    for (const StageCost& stage : costs.stages) costs.overlap.push_back(draw<Ns>(random, 1, stage.forward + 100));
  }
  const bool free = oneIn(random, 4);
  for (MessageCost& message : costs.messages) {
    message.bytes = free ? 0 : message.bytes + 1;
    message.transfer = free ? 0 : message.transfer;
  }
  if (rows.lockstep && rows.rows.size() > 1) {
    costs.load = draw<Ns>(random, 0, 20);
    costs.store = draw<Ns>(random, 0, 20);
  }
  const bool posts = sending != Sending::Overlapped && !rows.lockstep;
  const bool skips = !posts || (sending != Sending::OneChannel && oneIn(random, 4));
  std::erase_if(costs.messages, [&](const MessageCost& message) {
    return std::abs(message.from.value - message.to.value) > 1 && !(skips && (!posts || isPosted(rows.placement, message)));
  });
  return costs;
}

// ---- Comparison --------------------------------------------------------------------------------------------------

std::string text(const Span& span) {
  return fmt::format("rank {} to {}: {}{}{} {}..{}, {} bytes", span.rank.value, span.peer.value, span.stage.value, nameOf(span.kind),
                     span.microbatch.value, span.start.value, span.end.value, span.bytes.value);
}

/// The first span that only one of the two has, in words; empty where they are equal.
std::string firstDifference(const std::vector<Span>& actual, const std::vector<Span>& expected) {
  for (std::size_t i = 0; i < std::min(actual.size(), expected.size()); ++i) {
    if (actual[i] != expected[i]) return text(actual[i]) + " instead of " + text(expected[i]);
  }
  if (actual.size() == expected.size()) return {};
  return fmt::format("{} spans instead of {}", actual.size(), expected.size());
}

bool endsTheStep(const Span& span) { return span.kind == SpanKind::ReduceGrad || span.kind == SpanKind::Optimizer; }

/// What the schedule itself does: no waits, no end of the step.
std::vector<Span> doneIn(const Trace& trace) {
  std::vector<Span> spans = trace.spans;
  std::erase_if(spans, [](const Span& s) { return isWait(s.kind) || endsTheStep(s); });
  return spans;
}

/// Samples of a rank by the rules of simulator/step/simulate.h, from the spans of the reference.
class MemoryRules {
 public:
  MemoryRules(const Schedule& rows, const CostTable& costs, Sending sending, const test::EventReference& reference)
      : rows_(rows), costs_(costs), posted_(sending != Sending::Overlapped && !rows.lockstep), reference_(reference) {
    for (const Span& span : reference.spans()) {
      if (isCompute(span.kind)) times_[{span.stage, static_cast<ActionKind>(span.kind), span.microbatch}] = {span.start, span.end};
      trains_ = trains_ || (isCompute(span.kind) && span.kind != SpanKind::Forward);
    }
  }

  [[nodiscard]] std::vector<MemorySample> samples(Rank rank) {
    changes_.clear();
    for (std::size_t s = 0; s < costs_.stages.size(); ++s) {
      const StageCost& cost = costs_.stages[s];
      if (rows_.placement.holds(rank, Stage(s)))
        changes_[{0, 0, kBefore}] += cost.parameterBytes + cost.gradientBytes + cost.optimizerBytes;
    }
    const auto& row = rows_.rows[rank.index()];
    // A stage whose neighbour is on this rank may receive a skip connection alone, for which the row has no receive.
    const auto isReceived = [&](const Action& use) {
      return std::ranges::any_of(row, [&](const Action& a) {
        return isReceive(a.kind) && a.stage == use.stage && a.microbatch == use.microbatch && isBackward(a.kind) == isBackward(use.kind);
      });
    };
    std::optional<std::size_t> before;  // the compute action, or first one of a slot, that starts last before this position
    std::vector<Step> steps;
    for (std::size_t at = 0; at < row.size(); ++at) {
      const bool inSlot = at > 0 && row[at - 1].overlapsNext && row[at].kind == ActionKind::Backward;
      if (isReceive(row[at].kind)) receive(rank, at, before);
      if (!isCompute(row[at].kind)) continue;
      if (!inSlot) steps.push_back({timesOf(row[at]).first, timesOf(row[at]).second, at, 0, 0, 0});
      steps.back().freed += compute(rank, steps.back().at, row[at], !isReceived(row[at]), before);
      steps.back().sent += gradientsFor(row[at]);
      steps.back().held += heldAlone(row[at]) + handedOn(row[at], true);
      const bool opensSlot = row[at].overlapsNext && at + 1 < row.size() && row[at + 1].kind == ActionKind::Backward;
      if (!opensSlot) before = inSlot ? at - 1 : at;
    }
    // Gradients for other ranks stay until the next action, or slot, has ended. What an action leaves is there before it ends.
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const Bytes freed = steps[i].freed + (i > 0 ? steps[i - 1].sent : 0) - (i + 1 < steps.size() ? steps[i].sent : 0) - steps[i].held;
      const Bytes peak = std::max({Bytes{0}, -freed, -steps[i].freed});
      changes_[{steps[i].start + (steps[i].end - steps[i].start) / 2, steps[i].at, kMiddle}] += peak;
      changes_[{steps[i].end, steps[i].at, kEnd}] -= freed + peak;
    }
    // At an instant first the most of it, where that is more than before and after: of an action that takes no time.
    std::vector<MemorySample> result;
    Bytes bytes = 0;
    for (auto change = changes_.begin(); change != changes_.end();) {
      const Ns time = std::get<0>(change->first);
      Bytes most = bytes;
      for (; change != changes_.end() && std::get<0>(change->first) == time; ++change) most = std::max(most, bytes += change->second);
      if (most > bytes && (result.empty() || most > result.back().bytes)) result.push_back({rank, time, most});
      if (result.empty() || bytes != result.back().bytes) result.push_back({rank, time, bytes});
    }
    return result;
  }

 private:
  using Key = std::tuple<Stage, ActionKind, Microbatch>;
  enum Part : std::uint8_t { kBefore, kStart, kMiddle, kEnd };  ///< of an action

  [[nodiscard]] std::pair<Ns, Ns> timesOf(const Action& a) const { return times_.at({a.stage, a.kind, a.microbatch}); }
  [[nodiscard]] Bytes incoming(const Action& a, bool backward) const {
    Bytes bytes = 0;
    for (const MessageCost& m : costs_.messages) {
      const bool crosses = rows_.placement.rankOf(m.from, a.microbatch) != rows_.placement.rankOf(m.to, a.microbatch);
      if (m.to == a.stage && m.backward == backward && crosses) bytes += m.bytes;
    }
    return bytes;
  }
  /// An action or slot: what it frees at its end, its gradients for other ranks, and what it leaves to other stages of its rank.
  struct Step {
    Ns start = 0, end = 0;
    std::size_t at = 0;  ///< in the row
    Bytes freed = 0, sent = 0, held = 0;
  };

  /// What a W needs of the stage before is held once: by that stage until its backward ends, then to the end of the W. Less than zero
  /// after that W.
  [[nodiscard]] Bytes heldAlone(const Action& a) const {
    const auto endOfBackward = [&](Stage stage) {
      const auto whole = times_.find({stage, ActionKind::Backward, a.microbatch});
      return (whole != times_.end() ? whole : times_.find({stage, ActionKind::BackwardInput, a.microbatch}))->second.second;
    };
    if (a.kind == ActionKind::BackwardWeight) {
      const Bytes shared = costs_.stages[a.stage.index()].sharedForWeight;
      return shared > 0 && endOfBackward(Stage(a.stage.value - 1)) <= timesOf(a).first ? -shared : 0;
    }
    if (a.kind == ActionKind::Forward || a.stage.index() + 1 == costs_.stages.size()) return 0;
    const Stage after(a.stage.value + 1);
    const auto weight = times_.find({after, ActionKind::BackwardWeight, a.microbatch});
    return weight != times_.end() && timesOf(a).second <= weight->second.first ? costs_.stages[after.index()].sharedForWeight : 0;
  }

  /// Gradients that a backward makes for other stages of its rank, or that it takes of them: there from the one's end to the other's start.
  [[nodiscard]] Bytes handedOn(const Action& a, bool makes) const {
    Bytes bytes = 0;
    if (a.kind == ActionKind::Forward || a.kind == ActionKind::BackwardWeight) return 0;
    for (const MessageCost& m : costs_.messages) {
      const bool crosses = rows_.placement.rankOf(m.from, a.microbatch) != rows_.placement.rankOf(m.to, a.microbatch);
      if (m.backward && !crosses && (makes ? m.from : m.to) == a.stage) bytes += m.bytes;
    }
    return bytes;
  }
  [[nodiscard]] Bytes gradientsFor(const Action& a) const {
    Bytes bytes = 0;
    if (a.kind == ActionKind::Forward || a.kind == ActionKind::BackwardWeight) return 0;
    for (const MessageCost& m : costs_.messages) {
      const bool crosses = rows_.placement.rankOf(m.from, a.microbatch) != rows_.placement.rankOf(m.to, a.microbatch);
      if (m.from == a.stage && m.backward && crosses) bytes += m.bytes;
    }
    return bytes;
  }
  /// Posted as the engine does: when the compute action before starts; without one, when the first starts.
  void postInBackground(Rank rank, Bytes bytes, const std::optional<std::size_t>& before) {
    const auto& row = rows_.rows[rank.index()];
    const auto first = std::ranges::find_if(row, [](const Action& a) { return isCompute(a.kind); });
    const std::size_t at = before.value_or(static_cast<std::size_t>(first - row.begin()));
    changes_[{timesOf(row[at]).first, at, kStart}] += bytes;
  }
  void receive(Rank rank, std::size_t at, const std::optional<std::size_t>& before) {
    const Action& action = rows_.rows[rank.index()][at];
    const Bytes bytes = incoming(action, action.kind == ActionKind::RecvBackward);
    if (posted_) {
      changes_[{reference_.postedAt(rank, at), at, kStart}] += bytes;
    } else {
      postInBackground(rank, bytes, before);
    }
  }
  /// Returns what it frees at its end.
  Bytes compute(Rank rank, std::size_t at, const Action& action, bool postsHere, const std::optional<std::size_t>& before) {
    const StageCost& cost = costs_.stages[action.stage.index()];
    Bytes& atStart = changes_[{timesOf(action).first, at, kStart}];
    if (action.kind != ActionKind::BackwardWeight) {
      const Bytes bytes = incoming(action, action.kind != ActionKind::Forward);
      if (postsHere) posted_ ? void(atStart += bytes) : postInBackground(rank, bytes, before);
      atStart -= bytes;
    }
    atStart -= handedOn(action, false);
    if (action.kind == ActionKind::Forward) atStart += cost.activationBytes;
    if (action.kind == ActionKind::Backward || !trains_) return cost.activationBytes;
    const Bytes held = cost.activationBytes - cost.freedByInput + cost.addedByInput - cost.sharedForWeight;
    if (action.kind == ActionKind::BackwardInput) return cost.activationBytes - held;
    return action.kind == ActionKind::BackwardWeight ? held : 0;
  }

  const Schedule& rows_;
  const CostTable& costs_;
  bool posted_;
  bool trains_ = false;
  const test::EventReference& reference_;
  std::map<Key, std::pair<Ns, Ns>> times_;
  std::map<std::tuple<Ns, std::size_t, Part>, Bytes> changes_;  ///< by time, place in the row, and part of the action there
};

constexpr std::uint64_t kCases = 1500;  ///< of each way of sending

/// Calls `look(rows, costs, reference)` with random cases, until one fails. Those that deadlock are refused by the simulator.
template <class Look>
void forRandomCases(Sending sending, Look look) {
  std::uint64_t finished = 0;
  for (std::uint64_t seed = 1; seed <= kCases; ++seed) {
    std::mt19937_64 random(seed);
    const Schedule rows = randomRows(random, sending);
    const CostTable costs = randomTable(random, rows, sending);
    const test::EventReference reference(rows, costs, sending);
    SCOPED_TRACE(fmt::format("{}, seed {}: {} R={} S={} M={}", said(sending), seed, rows.name, rows.rows.size(), rows.placement.stages(),
                             rows.microbatches));
    if (reference.finished()) {
      ++finished;
      look(rows, costs, reference);
    } else {
      EXPECT_THROW((void)simulate(rows, costs, sending), Error);
    }
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(finished, kCases * 9 / 10) << "too few cases run to their end";
}

class EveryWayOfSending : public testing::TestWithParam<Sending> {};

INSTANTIATE_TEST_SUITE_P(Sending, EveryWayOfSending, testing::ValuesIn(kSendings), [](const auto& test) {
  std::string name(said(test.param));
  std::erase(name, ' ');
  return name;
});

TEST_P(EveryWayOfSending, GivesTheSpansOfTheEventByEventReference) {
  forRandomCases(GetParam(), [&](const Schedule& rows, const CostTable& costs, const test::EventReference& reference) {
    EXPECT_EQ(firstDifference(doneIn(simulate(rows, costs, GetParam())), reference.spans()), "");
  });
}

TEST_P(EveryWayOfSending, ProgramsHaveTheMakespanAndWindowOfTheTrace) {
  Times times;  // kept from one program to the next
  forRandomCases(GetParam(), [&](const Schedule& rows, const CostTable& costs, const test::EventReference&) {
    const Program program = compile(rows, costs, GetParam());
    execute(program, times);
    const Metrics metrics = metricsOf(traceOf(rowsOf(rows, GetParam()), costs, program, times));
    EXPECT_EQ(makespanOf(program, program.duration, times), metrics.makespan);
    EXPECT_EQ(windowOf(program, program.duration, times), metrics.window);
    EXPECT_EQ(metrics, metricsOf(simulate(rows, costs, GetParam())));
  });
}

TEST_P(EveryWayOfSending, MemoryFollowsTheRulesAtEveryInstant) {
  forRandomCases(GetParam(), [&](const Schedule& rows, const CostTable& costs, const test::EventReference& reference) {
    if (rows.lockstep && costs.load > 0) return;  // the rules say nothing of buffers posted around loads
    const Trace trace = simulate(rows, costs, GetParam());
    MemoryRules rules(rows, costs, GetParam(), reference);
    for (int r = 0; r < trace.ranks; ++r) {
      std::vector<MemorySample> actual = trace.memory;
      std::erase_if(actual, [&](const MemorySample& s) { return s.rank != Rank(r); });
      const std::vector<MemorySample> expected = rules.samples(Rank(r));
      for (std::size_t i = 0; i < std::min(actual.size(), expected.size()); ++i) {
        ASSERT_EQ(std::pair(actual[i].time, actual[i].bytes), std::pair(expected[i].time, expected[i].bytes))
            << "rank " << r << ", sample " << i;
      }
      ASSERT_EQ(actual.size(), expected.size()) << "rank " << r;
    }
  });
}

TEST_P(EveryWayOfSending, ARankIsBusyOrWaitsFromTheStartToTheEndOfItsRow) {
  forRandomCases(GetParam(), [&](const Schedule& rows, const CostTable& costs, const test::EventReference&) {
    if (rows.lockstep) return;  // between cycles a rank waits for no message of its own
    const Trace trace = simulate(rows, costs, GetParam());
    std::vector<Ns> clock(rows.rows.size(), 0);
    const Span* before = nullptr;
    for (const Span& span : trace.spans) {
      if (!isCompute(span.kind) && !isWait(span.kind)) continue;
      const bool slot = before != nullptr && before->rank == span.rank && before->start == span.start && before->end == span.end &&
                        before->kind == SpanKind::Forward && span.kind == SpanKind::Backward;
      ASSERT_TRUE(slot || span.start == clock[span.rank.index()]) << text(span) << " after " << clock[span.rank.index()];
      ASSERT_TRUE(!isWait(span.kind) || span.end > span.start) << text(span);
      clock[span.rank.index()] = span.end;
      before = &span;
    }
  });
}

TEST_P(EveryWayOfSending, AComputeOnlyScheduleIsLoweredFirst) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const Schedule schedule = generatedSchedule(random);
    const Schedule rows = schedule.lockstep || GetParam() == Sending::Overlapped ? schedule : lower(schedule);
    const CostTable costs = randomTable(random, rows, Sending::OneChannel);  // without skips, which may deadlock
    EXPECT_EQ(rowsOf(schedule, GetParam()), rows);
    EXPECT_EQ(rowsOf(rows, GetParam()), rows);
    EXPECT_EQ(simulate(schedule, costs, GetParam()), simulate(rows, costs, GetParam()));
  }
}

TEST(Sending, ProgramsKnowThePeaksOfTheTrace) {
  // A quarter of every duration is at least 1: an instant of no length shows in no trace.
  const auto stretched = [](CostTable costs) {
    for (StageCost& stage : costs.stages) {
      for (Ns StageCost::*time : {&StageCost::forward, &StageCost::backward, &StageCost::backwardInput, &StageCost::backwardWeight})
        stage.*time += 4;
    }
    for (Ns& time : costs.overlap) time += 4;
    return costs;
  };
  forRandomCases(Sending::Overlapped, [&](const Schedule& rows, const CostTable& table, const test::EventReference&) {
    const CostTable costs = stretched(table);
    const Program program = compile(rows, costs);
    const Metrics metrics = metricsOf(simulate(rows, costs));
    for (const RankMetrics& rank : metrics.ranks) {
      EXPECT_EQ(program.peakBytes[rank.rank.index()], rank.peakBytes) << "rank " << rank.rank.value;
      EXPECT_EQ(program.peakLive[rank.rank.index()], rank.peakLiveMicrobatches) << "rank " << rank.rank.value;
    }
  });
}

}  // namespace
}  // namespace pw
