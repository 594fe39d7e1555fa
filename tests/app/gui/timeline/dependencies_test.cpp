#include "app/gui/timeline/facts/dependencies.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "app/gui/document/copies.h"
#include "app/gui/timeline/facts/navigation.h"
#include "tests/app/gui/timeline/small_prediction.h"

namespace pw::gui {
namespace {

struct Of {
  std::shared_ptr<const Prediction> prediction;
  Dependencies dependencies{prediction->timeline, linksOf(prediction->costs)};

  [[nodiscard]] SpanRef at(int rank, SpanKind kind, int stage, int microbatch) const {
    const auto found = dependencies.find(Rank(rank), kind, Stage(stage), Microbatch(microbatch));
    EXPECT_TRUE(found) << rank << nameOf(kind) << stage << '.' << microbatch;
    return found.value_or(SpanRef{});
  }
};

TEST(Dependencies, FindsEverySpanByWhatItSays) {
  const Of of{smallPrediction("interleaved-1f1b", 2, 4)};
  const Timeline& t = of.prediction->timeline;
  std::size_t seen = 0;
  for (std::size_t r = 0; r < t.ranks.size(); ++r) {
    for (const TrackKind kind : {TrackKind::Compute, TrackKind::Communication}) {
      const SpanTrack& track = kind == TrackKind::Compute ? t.ranks[r].compute : t.ranks[r].communication;
      for (std::size_t i = 0; i < track.size(); ++i) {
        if (!isCompute(track.tags[i].kind) && track.tags[i].kind != SpanKind::SendForward && track.tags[i].kind != SpanKind::SendBackward)
          continue;
        const SpanRef expected{Rank(r), kind, static_cast<std::int32_t>(i)};
        EXPECT_EQ(of.dependencies.find(Rank(r), track.tags[i]), expected);
        ++seen;
      }
    }
  }
  // 4 stages, 4 microbatches, F and B; between neighbouring stages a message for each microbatch both ways, all of them between ranks.
  EXPECT_EQ(seen, 4u * 4u * 2u + 3u * 4u * 2u);
}

TEST(Dependencies, NothingIsFoundThatIsNotThere) {
  const Of of{smallPrediction()};
  EXPECT_FALSE(of.dependencies.find(Rank(0), SpanKind::Forward, Stage(1), Microbatch(0)));  // stage 1 is on rank 1
  EXPECT_FALSE(of.dependencies.find(Rank(0), SpanKind::Forward, Stage(0), Microbatch(8)));
  EXPECT_FALSE(of.dependencies.find(Rank(0), SpanKind::BackwardInput, Stage(0), Microbatch(0)));
}

TEST(Dependencies, AForwardNeedsTheMessageOfTheStageBefore) {
  const Of of{smallPrediction()};
  const SpanRef message = of.at(1, SpanKind::SendForward, 1, 3);
  EXPECT_EQ(of.dependencies.inputs(of.at(2, SpanKind::Forward, 2, 3)), std::vector{message});
  EXPECT_EQ(of.dependencies.inputs(message), std::vector{of.at(1, SpanKind::Forward, 1, 3)});
  EXPECT_EQ(of.dependencies.outputs(message), std::vector{of.at(2, SpanKind::Forward, 2, 3)});
  EXPECT_TRUE(of.dependencies.inputs(of.at(0, SpanKind::Forward, 0, 3)).empty());
}

TEST(Dependencies, ABackwardNeedsTheGradientsLastAndItsOwnForwardFirst) {
  const Of of{smallPrediction()};
  const std::vector expected{of.at(3, SpanKind::SendBackward, 3, 1), of.at(2, SpanKind::Forward, 2, 1)};
  EXPECT_EQ(of.dependencies.inputs(of.at(2, SpanKind::Backward, 2, 1)), expected);
  EXPECT_EQ(of.dependencies.inputs(of.at(3, SpanKind::Backward, 3, 1)), std::vector{of.at(3, SpanKind::Forward, 3, 1)});
}

TEST(Dependencies, OutputsAreInputsSeenFromTheOtherSide) {
  for (const char* schedule : {"1f1b", "zbv", "zb-h1", "dualpipev", "interleaved-1f1b"}) {
    const Of of{smallPrediction(schedule, 4, 8)};
    const Timeline& t = of.prediction->timeline;
    std::map<std::pair<SpanRef, SpanRef>, int> pairs;
    for (std::size_t r = 0; r < t.ranks.size(); ++r) {
      for (const TrackKind kind : {TrackKind::Compute, TrackKind::Communication}) {
        const SpanTrack& track = kind == TrackKind::Compute ? t.ranks[r].compute : t.ranks[r].communication;
        for (std::size_t i = 0; i < track.size(); ++i) {
          const SpanRef self{Rank(r), kind, static_cast<std::int32_t>(i)};
          for (const SpanRef& input : of.dependencies.inputs(self)) pairs[{input, self}] |= 1;
          for (const SpanRef& output : of.dependencies.outputs(self)) pairs[{self, output}] |= 2;
        }
      }
    }
    ASSERT_FALSE(pairs.empty());
    for (const auto& [pair, sides] : pairs) {
      EXPECT_EQ(sides, 3) << schedule;
      EXPECT_LE(spanOf(t, pair.first).end, spanOf(t, pair.second).start) << schedule;
    }
  }
}

TEST(Dependencies, StagesOfOneRankHandOverWithoutAMessage) {
  const Of of{smallPrediction("zbv", 2, 4)};  // stages 1 and 2 are both on rank 1
  const SpanRef before = of.at(1, SpanKind::Forward, 1, 0), after = of.at(1, SpanKind::Forward, 2, 0);
  EXPECT_EQ(of.dependencies.inputs(after), std::vector{before});
  const auto outputs = of.dependencies.outputs(before);
  EXPECT_NE(std::find(outputs.begin(), outputs.end(), after), outputs.end());
}

TEST(Dependencies, WhatWasAwaitedIsTheLatestOfInputsAndTheSpanBefore) {
  const Of of{smallPrediction()};
  // Rank 1 gets its first forward from rank 0 and has done nothing before; the second one is there when the first is done.
  EXPECT_EQ(of.dependencies.awaited(of.at(1, SpanKind::Forward, 1, 0)), of.at(0, SpanKind::SendForward, 0, 0));
  EXPECT_FALSE(of.dependencies.awaited(of.at(0, SpanKind::Forward, 0, 0)));
  EXPECT_EQ(of.dependencies.awaited(of.at(0, SpanKind::Forward, 0, 1)), of.at(0, SpanKind::Forward, 0, 0));
}

TEST(Dependencies, SteppingBackFromTheLastBackwardEndsAtTheFirstForward) {
  const Of of{smallPrediction()};
  const Timeline& t = of.prediction->timeline;
  SpanRef at = of.at(0, SpanKind::Backward, 0, 0);
  // 0B0 ← 1B0 ← 2B0 ← 3B0 ← 3F0 ← 2F0 ← 1F0 ← 0F0, with a message between ranks: 7 actions, 6 messages.
  for (int step = 0; step < 13; ++step) at = alongDependency(of.dependencies, t, at, -1);
  EXPECT_EQ(at, of.at(0, SpanKind::Forward, 0, 0));
  EXPECT_EQ(alongDependency(of.dependencies, t, at, -1), at);
}

TEST(Dependencies, SteppingForwardFromAForwardGoesToTheNextStage) {
  const Of of{smallPrediction()};
  const Timeline& t = of.prediction->timeline;
  SpanRef at = of.at(1, SpanKind::Forward, 1, 5);
  at = alongDependency(of.dependencies, t, at, 1);
  EXPECT_EQ(at, of.at(1, SpanKind::SendForward, 1, 5));
  at = alongDependency(of.dependencies, t, at, 1);
  EXPECT_EQ(at, of.at(2, SpanKind::Forward, 2, 5));
}

TEST(Dependencies, WithoutACostTableNeighboursAreTaken) {
  const auto prediction = smallPrediction();
  const Dependencies known(prediction->timeline, linksOf(prediction->costs)), guessed(prediction->timeline, chainLinks(4));
  const SpanTrack& track = prediction->timeline.ranks[2].compute;
  for (std::size_t i = 0; i < track.size(); ++i) {
    const SpanRef self{Rank(2), TrackKind::Compute, static_cast<std::int32_t>(i)};
    EXPECT_EQ(known.inputs(self), guessed.inputs(self));
    EXPECT_EQ(known.outputs(self), guessed.outputs(self));
  }
}

TEST(Dependencies, FlowsOfAnActionAreItsMessagesBothWays) {
  const Of of{smallPrediction()};
  const auto at = [&](int rank, SpanKind kind, int microbatch) { return of.at(rank, kind, rank, microbatch); };  // a chain: stage = rank
  const SpanRef forward = at(1, SpanKind::Forward, 3), backward = at(2, SpanKind::Backward, 5);
  EXPECT_EQ(flowsOf(of.dependencies, forward),
            (std::vector<Flow>{{at(0, SpanKind::Forward, 3), forward, at(0, SpanKind::SendForward, 3)},
                               {forward, at(2, SpanKind::Forward, 3), at(1, SpanKind::SendForward, 3)}}));
  EXPECT_EQ(flowsOf(of.dependencies, backward),
            (std::vector<Flow>{{at(3, SpanKind::Backward, 5), backward, at(3, SpanKind::SendBackward, 5)},
                               {backward, at(1, SpanKind::Backward, 5), at(2, SpanKind::SendBackward, 5)}}))
      << "nothing from its own forward, which is on the same rank";
  const SpanRef message = at(1, SpanKind::SendForward, 3);
  EXPECT_EQ(flowsOf(of.dependencies, message), (std::vector<Flow>{{forward, at(2, SpanKind::Forward, 3), message}}));
  EXPECT_EQ(flowsOf(of.dependencies, at(0, SpanKind::Forward, 0)).size(), 1U) << "the first stage receives nothing";
}

TEST(Dependencies, EveryMessageOfAStepIsAFlowOfBothItsEnds) {
  for (const char* schedule : {"gpipe", "1f1b", "interleaved-1f1b", "zbv", "dualpipev"}) {
    const Of of{smallPrediction(schedule, 4, 8)};
    const Timeline& t = of.prediction->timeline;
    for (std::size_t r = 0; r < t.ranks.size(); ++r) {
      for (std::size_t i = 0; i < t.ranks[r].communication.size(); ++i) {
        const SpanRef message{Rank(r), TrackKind::Communication, static_cast<std::int32_t>(i)};
        const std::vector<Flow> way = flowsOf(of.dependencies, message);
        ASSERT_EQ(way.size(), 1U) << schedule;
        EXPECT_EQ(way[0].from.rank, Rank(r));
        EXPECT_EQ(way[0].to.rank, t.ranks[r].communication.tags[i].peer);
        for (const SpanRef& end : {way[0].from, way[0].to}) {
          const std::vector<Flow> all = flowsOf(of.dependencies, end);
          EXPECT_EQ(std::ranges::count(all, way[0]), 1) << schedule;
        }
      }
    }
  }
}

/// A pipeline and copies of it, each a little later, as replicas are beside each other in a trace.
Trace copiesOf(const Prediction& prediction, int copies) {
  const Trace one = traceOf(prediction);
  Trace all{one.ranks * copies, {}, {}};
  for (int copy = 0; copy < copies; ++copy) {
    for (Span span : one.spans) {
      span.rank.value += copy * one.ranks;
      span.peer.value += copy * one.ranks;
      span.start += copy * kMs / 20;
      span.end += copy * kMs / 20;
      all.spans.push_back(span);
    }
  }
  return all;
}

TEST(Dependencies, CopiesOfAPipelineNeedNothingOfEachOther) {
  for (const char* schedule : {"1f1b", "interleaved-1f1b", "zbv", "dualpipev"}) {
    const Of of{smallPrediction(schedule, 4, 8)};
    Trace trace = copiesOf(*of.prediction, 2);
    std::erase_if(trace.spans, [](const Span& span) { return !isCompute(span.kind); });  // as of traces without messages
    const Timeline timeline = timelineOf(trace);
    const Dependencies both(timeline, linksOf(of.prediction->costs));
    const Trace alone = firstCopy(trace, 2);
    const Timeline first = timelineOf(alone);
    const Dependencies one(first, linksOf(of.prediction->costs));
    for (std::size_t r = 0; r < timeline.ranks.size(); ++r) {
      for (std::size_t i = 0; i < timeline.ranks[r].compute.size(); ++i) {
        const SpanRef self{Rank(r), TrackKind::Compute, static_cast<std::int32_t>(i)};
        SpanRef like = self;
        like.rank = Rank(r % 4);
        for (const bool inputs : {true, false}) {
          std::vector<SpanRef> found = inputs ? both.inputs(self) : both.outputs(self);
          for (SpanRef& ref : found) {
            EXPECT_EQ(ref.rank.index() / 4, r / 4) << schedule;
            ref.rank = Rank(ref.rank.index() % 4);
          }
          EXPECT_EQ(found, inputs ? one.inputs(like) : one.outputs(like)) << schedule << ": as if it were alone";
        }
      }
    }
  }
}

TEST(Copies, AreRanksThatDoTheSame) {
  for (const char* schedule : {"gpipe", "1f1b", "interleaved-1f1b", "zbv", "dualpipe", "chimera"}) {
    for (const int ranks : {2, 4}) {
      const auto prediction = smallPrediction(schedule, ranks, 8);
      for (const int copies : {1, 2, 3}) {
        const Trace trace = copiesOf(*prediction, copies);
        EXPECT_EQ(copiesIn(timelineOf(trace)), static_cast<std::size_t>(copies)) << schedule << ranks;
        EXPECT_EQ(firstCopy(trace, static_cast<std::size_t>(copies)).spans, traceOf(*prediction).spans) << schedule;
      }
    }
  }
  EXPECT_EQ(copiesIn(timelineOf({})), 1U);
}

}  // namespace
}  // namespace pw::gui
