#include "app/gui/timeline/knowledge.h"

#include <QTest>

#include "app/gui/document/loading.h"
#include "app/gui/document/pinned_plans.h"
#include "app/gui/timeline/facts/navigation.h"
#include "tests/app/gui/constants.h"
#include "tests/app/gui/timeline/parts_fixture.h"

namespace pw::gui {
namespace {

using KnowledgeTest = PartsFixture;
using ShownTimelinesTest = PartsFixture;

std::shared_ptr<const Prediction> slowPrediction(int factor) {
  const Schedule compute = generate("1f1b", {4, 4, 8});
  CostTable costs = smallCosts(4);
  for (StageCost& stage : costs.stages) stage.forward *= factor;
  return Predictor().predict(std::make_shared<const Schedule>(lower(compute)), costs);
}

// ---- Which timelines are shown ----

TEST_F(ShownTimelinesTest, AnIndexMeansTheSameWhereAllTracksHaveAsManySpans) {
  EXPECT_FALSE(shown.takeMeasured().isAny) << "there is none yet";
  const auto first = measure(*smallPrediction());
  EXPECT_TRUE(first.isAny);
  EXPECT_TRUE(first.isOtherShape);
  EXPECT_EQ(scene.measured.get(), &shown.measured()->timeline);
  EXPECT_FALSE(shown.takeMeasured().isAny) << "it is the same one";
  EXPECT_FALSE(measure(*slowPrediction(2)).isOtherShape) << "other times only";
  EXPECT_TRUE(measure(*smallPrediction("1f1b", 4, 9)).isOtherShape);
  document.setMeasured(nullptr);
  EXPECT_TRUE(shown.takeMeasured().isAny);
  EXPECT_TRUE(isEmpty(scene));
}

TEST_F(ShownTimelinesTest, BesideAPredictionAMeasuredOneKeepsTheView) {
  predict(smallPrediction());
  EXPECT_FALSE(measure(*smallPrediction("gpipe", 2, 3)).isOtherShape);
}

TEST_F(ShownTimelinesTest, NamesBothWhereOneIsAPinnedPlan) {
  predict(smallPrediction());
  auto pinned = std::make_shared<Measured>();
  pinned->trace = traceOf(*slowPrediction(2));
  pinned->timeline = timelineOf(pinned->trace);
  pinned->pinnedAs = QStringLiteral("B");
  document.setMeasured(pinned);
  static_cast<void>(shown.takeMeasured());
  knowledge.forget(Source::Measured);
  EXPECT_EQ(scene.predictedName, "this plan");
  EXPECT_EQ(scene.measuredName, "plan B");
  EXPECT_TRUE(detailsOf(knowledge.factsOf(at(Source::Predicted, 0, SpanKind::Forward, 0, 0), false)).contains("plan B 2"))
      << "the forward takes twice as long there";
  EXPECT_TRUE(detailsOf(knowledge.factsOf(at(Source::Measured, 0, SpanKind::Forward, 0, 0), false)).contains("this plan 1"));
  measure(*smallPrediction());
  EXPECT_EQ(scene.predictedName, "predicted");
  EXPECT_EQ(scene.measuredName, "measured");
}

TEST_F(ShownTimelinesTest, APlanOfMoreRanksIsNoReplicas) {
  predict(smallPrediction("1f1b", 2, 8));
  EXPECT_EQ(shown.pipelineRanks(), 2U);
  measure(*smallPrediction());
  EXPECT_EQ(shown.pipelineRanks(), 0U) << "a trace of one pipeline of 4 ranks is not of two replicas";
  measure(*smallPrediction("1f1b", 2, 8));
  auto copies = std::make_shared<Measured>(*shown.measured());
  const auto ranks = copies->timeline.ranks;
  copies->timeline.ranks.insert(copies->timeline.ranks.end(), ranks.begin(), ranks.end());
  document.setMeasured(copies);
  static_cast<void>(shown.takeMeasured());
  EXPECT_EQ(shown.pipelineRanks(), 2U) << "two pipelines of 2 ranks that do the same are";
  measure(*smallPrediction());
  auto pinned = std::make_shared<Measured>(*shown.measured());
  pinned->pinnedAs = QStringLiteral("A");
  document.setMeasured(pinned);
  static_cast<void>(shown.takeMeasured());
  EXPECT_EQ(shown.pipelineRanks(), 0U) << "a plan of 4 is not";
  predict(smallPrediction());
  EXPECT_EQ(shown.pipelineRanks(), 4U);
}

TEST_F(ShownTimelinesTest, RestAMomentAfterTheLastChange) {
  EXPECT_TRUE(shown.isSettled());
  shown.settleLater();
  EXPECT_FALSE(shown.isSettled());
}

// ---- What is known of them ----

TEST_F(KnowledgeTest, NothingIsKnownOfATimelineThatIsNotShown) {
  EXPECT_EQ(knowledge.dependencies(Source::Predicted), nullptr);
  measure(*smallPrediction());
  EXPECT_NE(knowledge.dependencies(Source::Measured), nullptr);
  EXPECT_FALSE(knowledge.counterpart(at(Source::Measured, 0, SpanKind::Forward, 0, 0)));
}

TEST_F(KnowledgeTest, EachActionAndMessageHasACounterpartOfTheSameName) {
  predict(smallPrediction());
  measure(*slowPrediction(3));
  for (const Source source : {Source::Predicted, Source::Measured}) {
    const Source other = source == Source::Predicted ? Source::Measured : Source::Predicted;
    for (const TrackKind track : {TrackKind::Compute, TrackKind::Communication}) {
      const auto size = static_cast<std::int32_t>(trackOf(*timelineFrom(scene, source), {Rank(1), track, 0}).size());
      EXPECT_EQ(size, 16) << "8 forwards and 8 backwards, and what rank 1 sends of each";
      for (std::int32_t i = 0; i < size; ++i) {
        const SpanRef own{Rank(1), track, i};
        const auto found = knowledge.counterpart({source, own});
        ASSERT_TRUE(found) << i;
        EXPECT_EQ(found->source, other);
        EXPECT_EQ(tagOf(*timelineFrom(scene, other), found->span), tagOf(*timelineFrom(scene, source), own));
      }
    }
  }
}

TEST_F(KnowledgeTest, WhileTimelinesMoveNoCounterpartIsLookedFor) {
  predict(smallPrediction());
  measure(*slowPrediction(2));
  const SourcedSpan span = at(Source::Predicted, 2, SpanKind::Backward, 2, 1);
  EXPECT_TRUE(knowledge.counterpart(span));
  shown.settleLater();
  EXPECT_FALSE(knowledge.counterpart(span));
}

TEST_F(KnowledgeTest, FactsJoinBothTimelines) {
  predict(smallPrediction());
  measure(*slowPrediction(3));
  // Rank 1 waits for a forward (1 ms; measured 3 ms), a transfer (0.2 ms) and a latency (0.1 ms).
  const SpanFacts predicted = knowledge.factsOf(at(Source::Predicted, 1, SpanKind::Forward, 1, 0), true);
  EXPECT_TRUE(predicted.fully);
  EXPECT_EQ(predicted.wait, 1'300'000);
  ASSERT_TRUE(predicted.other);
  EXPECT_EQ(predicted.other->start, 3'300'000);
  EXPECT_EQ(predicted.other->end, 6'300'000);
  EXPECT_FALSE(knowledge.factsOf(at(Source::Predicted, 1, SpanKind::Forward, 1, 0), false).fully);
}

TEST_F(KnowledgeTest, TimesOfARunWithOtherSplitsAreNotCompared) {
  const auto takePrediction = [this] {
    ASSERT_TRUE(QTest::qWaitFor([this] { return document.prediction() != nullptr && !document.isPredicting(); }, kLongMs));
    static_cast<void>(shown.takePrediction());
    knowledge.forget(Source::Predicted);
    ASSERT_TRUE(QTest::qWaitFor([this] { return shown.isSettled(); }, kLongMs));
  };
  document.adopt(*loadFiles({kGpt}, {}));
  takePrediction();
  auto measured = std::make_shared<Measured>();
  measured->trace = traceOf(*document.prediction());
  measured->timeline = timelineOf(measured->trace);
  measured->run.emplace().plan = document.plan();
  document.setMeasured(measured);
  static_cast<void>(shown.takeMeasured());
  knowledge.forget(Source::Measured);
  const auto compared = [this] { return knowledge.factsOf(at(Source::Measured, 1, SpanKind::Backward, 1, 2), false).other.has_value(); };
  EXPECT_TRUE(compared());
  document.edit("fewer microbatches", [](Design& d) { d.request.microbatches = 4; });
  takePrediction();
  EXPECT_TRUE(compared()) << "another plan, but the same work";
  document.edit("another split", [](Design& d) { d.request.begins.front() = NodeId(d.request.begins.front().value - 1); });
  takePrediction();
  EXPECT_FALSE(compared());
  EXPECT_FALSE(scene.comparesTimes) << "nor are their colours";
  const SpanFacts facts = knowledge.factsOf(at(Source::Measured, 1, SpanKind::Backward, 1, 2), false);
  EXPECT_TRUE(tooltipOf(facts).contains("not compared with the prediction: the splits differ")) << tooltipOf(facts).toStdString();
  EXPECT_TRUE(detailsOf(facts).contains("not compared with the prediction: the splits differ"));
  document.undo();
  takePrediction();
  EXPECT_TRUE(scene.comparesTimes);
}

TEST_F(ShownTimelinesTest, TimesOfAPinnedPlanWithOtherSplitsAreNotCompared) {
  PinnedPlans pins{document};
  const auto takePrediction = [this] {
    ASSERT_TRUE(QTest::qWaitFor([this] { return document.prediction() != nullptr && !document.isPredicting(); }, kLongMs));
    static_cast<void>(shown.takePrediction());
  };
  document.adopt(*loadFiles({kGpt}, {}));
  takePrediction();
  pins.pin();
  pins.compareWith(0);
  static_cast<void>(shown.takeMeasured());
  EXPECT_TRUE(scene.comparesTimes);
  document.edit("another split", [](Design& d) { d.request.begins.front() = NodeId(d.request.begins.front().value - 1); });
  takePrediction();
  EXPECT_FALSE(scene.comparesTimes);
}

TEST_F(KnowledgeTest, AMeasuredGapHasACauseByRule) {
  measure(*slowPrediction(3));
  const Cause cause = knowledge.causeOf({Source::Measured, Rank(1), 0});
  EXPECT_TRUE(cause.headline.startsWith(QStringLiteral("Rank 1 waits 3.3"))) << cause.headline.toStdString();
  const SourcedSpan forward = at(Source::Measured, 0, SpanKind::Forward, 0, 0);
  EXPECT_NE(std::find(cause.spans.begin(), cause.spans.end(), forward), cause.spans.end());
  EXPECT_EQ(knowledge.explanation(), nullptr) << "only predictions are explained";
}

}  // namespace
}  // namespace pw::gui
