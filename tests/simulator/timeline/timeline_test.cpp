#include "simulator/timeline/timeline.h"
#include "simulator/timeline/fill.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "schedules/generate.h"
#include "simulator/step/compile.h"
#include "simulator/step/cost_table.h"
#include "simulator/step/execute.h"
#include "simulator/step/program.h"
#include "tests/schedules/random_schedules.h"
#include "tests/support/random_costs.h"

namespace pw {
namespace {

using test::draw;
using test::oneIn;

/// A program, its times, and the rows they are of.
struct Executed {
  Schedule rows;
  Program program;
  Times times;

  Executed(const Schedule& schedule, const CostTable& costs, Sending sending)
      : rows(rowsOf(schedule, sending)), program(compile(rows, costs, sending)) {
    execute(program, times);
  }
};

/// Whether filling `reused`, whatever it held, and filling a new one both give what the trace gives.
void expectSameAsOfTrace(const Schedule& schedule, const CostTable& costs, Sending sending, Timeline& reused) {
  const Executed e(schedule, costs, sending);
  const Timeline expected = timelineOf(traceOf(e.rows, costs, e.program, e.times));
  Timeline filled;
  fillTimeline(e.rows, costs, e.program, e.times, filled);
  EXPECT_EQ(filled, expected) << schedule.name;
  fillTimeline(e.rows, costs, e.program, e.times, reused);
  EXPECT_EQ(reused, expected) << schedule.name << ", filled again";
}

CostTable uniform(int stages, Ns latency, Ns transfer) {
  SyntheticCosts costs;
  costs.forward = {10};
  costs.backward = {20};
  costs.latency = latency;
  costs.transfer = transfer;
  CostTable table = syntheticTable(costs, stages);
  for (StageCost& stage : table.stages) {
    stage.activationBytes = 100;
    stage.parameterBytes = 1000;
    stage.forwardPeak = 130;
    stage.backwardPeak = 50;
  }
  for (MessageCost& message : table.messages) message.bytes = 7;
  return table;
}

constexpr std::array kSendings{Sending::Overlapped, Sending::Posted, Sending::OneChannel, Sending::Blocking};

TEST(Timeline, FilledFromAProgramIsThatOfTheTraceForEveryFamily) {
  Timeline reused;
  int overlaps = 0, lockstep = 0, mirrored = 0;
  for (const Generator& generator : generators()) {
    for (const int chunks : {1, 2, 4}) {
      const Shape shape{4, 4 * chunks, 8};
      if (generator.refusal(shape)) continue;
      const Schedule schedule = generator.generate(shape);
      for (const auto& row : schedule.rows) overlaps += static_cast<int>(std::ranges::count(row, true, &Action::overlapsNext));
      lockstep += schedule.lockstep ? 1 : 0;
      mirrored += schedule.placement.bidirectional() ? 1 : 0;
      for (const auto& [latency, transfer] : std::vector<std::pair<Ns, Ns>>{{0, 0}, {3, 0}, {0, 4}, {3, 4}}) {
        CostTable costs = uniform(4 * chunks, latency, transfer);
        costs.reduceTime = Ns(chunks);
        costs.load = latency;
        costs.store = transfer;
        for (StageCost& stage : costs.stages) stage.optimizer = 2 * latency;
        expectSameAsOfTrace(schedule, costs, Sending::Overlapped, reused);
      }
    }
  }
  EXPECT_GT(overlaps, 0);
  EXPECT_GT(lockstep, 0);
  EXPECT_GT(mirrored, 0);
}

/// Sound under this way of sending, with slots, reductions, idle cells and any placement.
Schedule randomRows(std::mt19937_64& random, Sending sending) {
  test::Wish wish;
  wish.lowered = sending != Sending::Overlapped || oneIn(random, 2);
  if (sending == Sending::Posted) wish.soundUnder = test::Transport::Buffered;
  if (sending == Sending::OneChannel) wish.soundUnder = test::Transport::OneChannel;
  return test::Grower(random, wish).grow();
}

TEST(Timeline, FilledFromAProgramIsThatOfTheTraceForRandomSchedulesAndCosts) {
  std::mt19937_64 random(42);
  Timeline reused;
  for (int i = 0; i < 1000 && !HasFailure(); ++i) {
    SCOPED_TRACE("case " + std::to_string(i));
    const Sending sending = kSendings[static_cast<std::size_t>(draw(random, 0, 3))];
    const bool plain = sending == Sending::Overlapped && oneIn(random, 2);
    const Schedule schedule = plain ? test::randomSchedule(random) : randomRows(random, sending);
    CostTable costs = test::randomCosts(random, schedule);
    if (!plain) std::erase_if(costs.messages, [](const MessageCost& m) { return std::abs(m.from.value - m.to.value) != 1; });
    const bool cheap = oneIn(random, 2);
    for (MessageCost& message : costs.messages) {
      if (cheap || oneIn(random, 3)) message.transfer = 0;
      if (oneIn(random, 3)) message.latency = 0;
    }
    for (StageCost& stage : costs.stages) {
      if (oneIn(random, 4)) stage.forward = 0;
      stage.reduce = oneIn(random, 2) ? draw<Ns>(random, 1, 200) : 0;
      stage.backwardPeak = draw<Bytes>(random, 0, 300);
      stage.forwardPeak = stage.activationBytes + draw<Bytes>(random, 0, 50);
    }
    expectSameAsOfTrace(schedule, costs, sending, reused);
  }
}

TEST(Timeline, RefillingKeepsTheArrays) {
  const Schedule schedule = generate("1f1b", {4, 4, 64});
  CostTable costs = uniform(4, 2, 3);
  Timeline timeline;
  const Executed before(schedule, costs, Sending::Overlapped);
  fillTimeline(before.rows, costs, before.program, before.times, timeline);
  std::vector<const void*> arrays;
  const auto list = [&] {
    std::vector<const void*> found;
    for (const auto& rank : timeline.ranks) {
      for (const auto* const track : {&rank.compute, &rank.communication}) {
        found.insert(found.end(),
                     {track->start.data(), track->end.data(), track->tags.data(), track->busy.data(), track->latestEnd.data()});
      }
      found.insert(found.end(), {rank.memory.time.data(), rank.memory.bytes.data(), rank.memory.extremes.data()});
    }
    return found;
  };
  arrays = list();
  costs.stages[1].forward = 25;
  const Executed after(schedule, costs, Sending::Overlapped);
  fillTimeline(after.rows, costs, after.program, after.times, timeline);
  EXPECT_EQ(list(), arrays);
  EXPECT_EQ(timeline, timelineOf(traceOf(after.rows, costs, after.program, after.times)));
}

// ---- Searching ----

/// A track as of a trace with these spans of rank 0.
SpanTrack trackOf(std::vector<Span> spans, TrackKind kind) {
  Trace trace{1, std::move(spans), {}};
  normalize(trace);
  Timeline timeline = timelineOf(trace);
  return std::move(kind == TrackKind::Compute ? timeline.ranks[0].compute : timeline.ranks[0].communication);
}

Span span(SpanKind kind, Ns start, Ns end, int microbatch = 0) {
  return {Rank(0), kind, Stage(0), Microbatch(microbatch), Rank(0), 0, start, end};
}

/// One after the other with gaps, some without duration, some slots. The first starts at 0. All times are even, so that halves are whole.
SpanTrack randomCompute(std::mt19937_64& random, int spans) {
  std::vector<Span> list;
  Ns now = 0;
  for (int i = 0; i < spans; ++i) {
    const Ns end = now + 2 * (oneIn(random, 8) ? 0 : draw<Ns>(random, 1, 20));
    if (oneIn(random, 4) && end > now) {
      list.push_back(span(SpanKind::Forward, now, end, i));
      list.push_back(span(SpanKind::Backward, now, end, i));
    } else {
      list.push_back(span(static_cast<SpanKind>(draw(random, 0, 3)), now, end, i));
    }
    now = end + (oneIn(random, 3) ? 2 * draw<Ns>(random, 0, 15) : 0);
  }
  return trackOf(std::move(list), TrackKind::Compute);
}

/// Overlapping messages, a few of them very long.
SpanTrack randomMessages(std::mt19937_64& random, int spans) {
  std::vector<Span> list{span(SpanKind::SendForward, 0, 2)};
  Ns now = 0;
  for (int i = 0; i < spans; ++i) {
    now += Ns(2 * draw(random, 0, 6));
    list.push_back(span(oneIn(random, 2) ? SpanKind::SendForward : SpanKind::SendBackward, now,
                        now + 2 * draw<Ns>(random, 0, Ns(oneIn(random, 20) ? 2000 : 12)), i));
  }
  return trackOf(std::move(list), TrackKind::Communication);
}

class TimelineSearch : public testing::TestWithParam<TrackKind> {
 protected:
  SpanTrack randomTrack(std::mt19937_64& random) const {
    const int spans = static_cast<int>(draw(random, 0, oneIn(random, 3) ? 400 : 40));
    return GetParam() == TrackKind::Compute ? randomCompute(random, spans) : randomMessages(random, spans);
  }
  static Ns somewhere(std::mt19937_64& random, const SpanTrack& track) {
    return 2 * draw<Ns>(random, -5, track.size() == 0 ? 5 : track.latestEnd.back() / 2 + 5);
  }
};

TEST_P(TimelineSearch, VisibleHoldsAllThatTouchesARangeAndLittleElse) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 2000; ++i) {
    const SpanTrack track = randomTrack(random);
    const Ns from = somewhere(random, track), to = somewhere(random, track);
    const auto [first, last] = visible(track, from, to);
    ASSERT_LE(first, last);
    for (std::size_t s = 0; s < track.size(); ++s) {
      const bool touches = track.start[s] < to && track.end[s] > from;
      const bool inside = s >= first && s < last;
      ASSERT_TRUE(!touches || inside) << "span " << s << " touches";
      if (GetParam() == TrackKind::Compute && inside && track.end[s] > track.start[s]) {
        ASSERT_TRUE(touches) << "span " << s << " does not touch";
      }
    }
  }
}

TEST_P(TimelineSearch, FirstFromFindsTheLowerBoundFromAnyHint) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 2000; ++i) {
    const SpanTrack track = randomTrack(random);
    const Ns time = somewhere(random, track);
    const auto expected = std::lower_bound(track.start.begin(), track.start.end(), time) - track.start.begin();
    const auto hint = static_cast<std::size_t>(draw(random, 0, static_cast<std::int64_t>(track.size()) + 40));
    ASSERT_EQ(firstFrom(track, time, hint), static_cast<std::size_t>(expected)) << "hint " << hint << " of " << track.size();
  }
}

TEST_P(TimelineSearch, BusyByKindIsTheSumOverAllSpans) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 2000; ++i) {
    const SpanTrack track = randomTrack(random);
    const Ns from = somewhere(random, track), to = somewhere(random, track);
    KindTimes expected{};
    for (std::size_t s = 0; s < track.size(); ++s) {
      const Ns part = std::max<Ns>(0, std::min(to, track.end[s]) - std::max(from, track.start[s]));
      const bool half = isSlotAt(track, s) || (s > 0 && isSlotAt(track, s - 1));
      expected[static_cast<std::size_t>(track.tags[s].kind)] += half ? part / 2 : part;
    }
    ASSERT_EQ(busyByKind(track, from, to), expected) << "case " << i << ": [" << from << ", " << to << ")";
  }
}

TEST_P(TimelineSearch, SpanAtIsTheLastOneUnderWayAndOfASlotTheForward) {
  std::mt19937_64 random(4);
  for (int i = 0; i < 2000; ++i) {
    const SpanTrack track = randomTrack(random);
    const Ns time = somewhere(random, track);
    std::optional<std::size_t> expected;
    for (std::size_t s = 0; s < track.size(); ++s) {
      if (track.start[s] <= time && time < track.end[s]) expected = s;
    }
    if (expected && *expected > 0 && isSlotAt(track, *expected - 1)) --*expected;
    ASSERT_EQ(spanAt(track, time), expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Tracks, TimelineSearch, testing::Values(TrackKind::Compute, TrackKind::Communication),
                         [](const auto& kind) { return kind.param == TrackKind::Compute ? "Compute" : "Communication"; });

/// Rank 0: F [0, 4), bubble, B [10, 14); rank 1 runs until 20. A message [4, 9), another [6, 8), and a reduction [14, 18).
Timeline small() {
  Trace trace{2,
              {{Rank(0), SpanKind::Forward, Stage(0), Microbatch(0), Rank(0), 0, 0, 4},
               {Rank(1), SpanKind::WaitForward, Stage(1), Microbatch(0), Rank(1), 0, 0, 9},
               {Rank(0), SpanKind::SendForward, Stage(0), Microbatch(0), Rank(1), 5, 4, 9},
               {Rank(0), SpanKind::WaitBackward, Stage(0), Microbatch(0), Rank(0), 0, 4, 10},
               {Rank(0), SpanKind::SendForward, Stage(0), Microbatch(1), Rank(1), 5, 6, 8},
               {Rank(1), SpanKind::Forward, Stage(1), Microbatch(0), Rank(1), 0, 9, 20},
               {Rank(0), SpanKind::Backward, Stage(0), Microbatch(0), Rank(0), 0, 10, 14},
               {Rank(0), SpanKind::ReduceGrad, Stage(0), Microbatch(-1), Rank(0), 0, 14, 18}},
              {{Rank(0), 0, 100}, {Rank(0), 4, 300}, {Rank(1), 0, 50}}};
  normalize(trace);
  return timelineOf(trace);
}

TEST(Timeline, WaitsAreNotSpansAndReductionsOfStagesLieBesideCompute) {
  const Timeline t = small();
  EXPECT_EQ(t.end, 20);
  EXPECT_EQ(t.stages, 2);
  EXPECT_EQ(t.peak, 300);
  EXPECT_EQ(t.ranks[0].compute.size(), 2u);
  EXPECT_EQ(t.ranks[0].communication.size(), 3u);
  EXPECT_EQ(t.ranks[1].compute.size(), 1u);
  const Span message = spanOf(t, {Rank(0), TrackKind::Communication, 0});
  EXPECT_EQ(message, (Span{Rank(0), SpanKind::SendForward, Stage(0), Microbatch(0), Rank(1), 0, 4, 9}));
}

TEST(Timeline, BubblesReachFromTheSpanBeforeToTheNextOrTheEnd) {
  const Timeline t = small();
  EXPECT_EQ(bubbleAt(t, Rank(0), 3), std::nullopt);
  for (const int time : {4, 7, 9}) EXPECT_EQ(bubbleAt(t, Rank(0), Ns(time)), std::pair(Ns{4}, Ns{10})) << time;
  EXPECT_EQ(bubbleAt(t, Rank(0), 10), std::nullopt);
  EXPECT_EQ(bubbleAt(t, Rank(0), 14), std::pair(Ns{14}, Ns{20}));
  EXPECT_EQ(bubbleAt(t, Rank(1), 0), std::pair(Ns{0}, Ns{9}));
  EXPECT_EQ(bubbleAt(t, Rank(0), -1), std::nullopt);
  EXPECT_EQ(bubbleAt(t, Rank(0), 20), std::nullopt);
}

TEST(Timeline, TotalsAddUpARange) {
  const Timeline t = small();
  // Rank 0 in [2, 16): F 2 and B 4; the rest of 14 is idle; messages 4 … 9 (the other lies within) and 2 of the reduction.
  EXPECT_EQ(rangeTotals(t, 2, 16)[0], (RangeTotals{6, 8, 7}));
  EXPECT_EQ(rangeTotals(t, 2, 16)[1], (RangeTotals{7, 7, 0}));
  // Nothing is a bubble outside the timeline.
  EXPECT_EQ(rangeTotals(t, -10, 40)[0], (RangeTotals{8, 12, 9}));
  EXPECT_EQ(rangeTotals(t, 16, 16)[0], RangeTotals{});
}

TEST(Timeline, AnActionDoneAgainIsFoundByItsOccurrence) {
  Trace trace{1, {span(SpanKind::Forward, 0, 2, 5), span(SpanKind::Forward, 2, 4, 6), span(SpanKind::Forward, 4, 6, 5)}, {}};
  const Timeline t = timelineOf(trace);
  EXPECT_EQ(findAction(t, Rank(0), SpanKind::Forward, Stage(0), Microbatch(5)), (SpanRef{Rank(0), TrackKind::Compute, 0}));
  EXPECT_EQ(findAction(t, Rank(0), SpanKind::Forward, Stage(0), Microbatch(5), 1), (SpanRef{Rank(0), TrackKind::Compute, 2}));
  EXPECT_EQ(findAction(t, Rank(0), SpanKind::Forward, Stage(0), Microbatch(5), 2), std::nullopt);
  EXPECT_EQ(findAction(t, Rank(0), SpanKind::Backward, Stage(0), Microbatch(5)), std::nullopt);
  EXPECT_EQ(findAction(t, Rank(3), SpanKind::Forward, Stage(0), Microbatch(5)), std::nullopt);
}

}  // namespace
}  // namespace pw
