// What a model's report finds, and where, on graphs made by hand.
#include "simulator/report/split_report.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "simulator/report/split_verdict.h"
#include "tests/support/graph_builder.h"

namespace pw {
namespace {

using test::GraphBuilder;

/// Two layers; the second normalises over the batch.
ModelGraph withBatchNorm() {
  GraphBuilder b;
  const ValueId x = b.input("x");
  const ValueId y = b.within({"blocks.0"}).call("linear", {{"input", x}, {"weight", b.parameter("blocks.0.weight")}}, "y");
  return b.done(b.within({"blocks.1"}).call("batch_norm", {{"input", y}, {"training", true}}, "z"));
}

Finding of(FindingKind kind) { return {kind, "", "op", "", "", {}}; }

TEST(SplitReport, FindsNothingInLayersThatComputeEachSampleByItself) {
  EXPECT_TRUE(splitReport(test::chain(3)).empty());
  EXPECT_EQ(splitVerdict({}).same, Sameness::Yes);
  EXPECT_EQ(splitVerdict({}).sentence, "yes, each sample is computed by itself");
}

TEST(SplitReport, NamesTheModuleTheNodeAndTheSourceOfAFinding) {
  const std::vector<Finding> findings = splitReport(withBatchNorm());
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings.front(), (Finding{FindingKind::BatchNorm, "blocks.1", "batch_norm", "model.py:2", "", NodeId(1)}));
}

TEST(SplitReport, PlacesAFindingInsideASubgraphAtTheNodeThatHoldsIt) {
  GraphBuilder b;
  const ValueId x = b.input("x");
  const ValueId y = b.within({"a"}).op("relu", {x}, "y");
  const ModelGraph graph = b.done(b.within({"b"}).wrapped(true, "bernoulli", {{"self", y}}, {y}, "z"));
  const std::vector<Finding> findings = splitReport(graph);
  const auto random = std::ranges::find(findings, FindingKind::Random, &Finding::kind);
  ASSERT_NE(random, findings.end());
  EXPECT_EQ(random->module, "b");
  EXPECT_EQ(random->node, NodeId(1));
}

TEST(SplitReport, AsksForOperatorsWhereItCanAndKnowsTheirNamespaceOtherwise) {
  GraphBuilder b;
  const ModelGraph graph = b.done(b.op("torch.ops.mine.twice.default", {b.input("x")}, "y"));
  const auto unsupported = [&](const OperatorFacts& facts) {
    const std::vector<Finding> findings = splitReport(graph, facts);
    return std::ranges::count(findings, FindingKind::Unsupported, &Finding::kind);
  };
  EXPECT_EQ(unsupported({}), 1);
  EXPECT_EQ(unsupported({.has = [](const std::string&) { return true; }, .written = {}}), 0);
}

TEST(SplitReport, OfAFixedBatchIsAboutNoNodeInParticular) {
  GraphBuilder b;
  const ValueId x = b.input("x", GraphBuilder::shape({2, 4}));
  const ModelGraph graph = b.done(b.op("relu", {x}, "y", GraphBuilder::shape({2, 4})));
  const std::vector<Finding> findings = splitReport(graph);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings.front(), (Finding{FindingKind::FixedBatch, "", "batch 2", "", "", {}}));
}

TEST(FindingFacts, HaveTheirOwnKindAndWordsForAll) {
  for (int k = 0; k <= static_cast<int>(FindingKind::Nondeterministic); ++k) {
    const auto kind = static_cast<FindingKind>(k);
    EXPECT_EQ(factsOf(kind).kind, kind);
    EXPECT_FALSE(factsOf(kind).name.empty() || factsOf(kind).meaning.empty() || factsOf(kind).cure.empty()) << k;
  }
  EXPECT_EQ(factsOf(FindingKind::DataDependent).name, "data-dependent");
  EXPECT_EQ(factsOf(FindingKind::DataDependent).effect, FindingEffect::Limits);
  EXPECT_EQ(factsOf(FindingKind::LossCount).effect, FindingEffect::ChangesResults);
  EXPECT_EQ(factsOf(FindingKind::Random).effect, FindingEffect::Note);
}

TEST(SplitVerdict, IsThatOfTheWorstFinding) {
  const auto same = [](const std::vector<FindingKind>& kinds) {
    std::vector<Finding> findings;
    for (const FindingKind kind : kinds) findings.push_back(of(kind));
    return splitVerdict(findings).same;
  };
  EXPECT_EQ(same({FindingKind::OwnLoss, FindingKind::Nondeterministic}), Sameness::Yes);
  EXPECT_EQ(same({FindingKind::LossCount, FindingKind::OwnLoss}), Sameness::Counted);
  EXPECT_EQ(same({FindingKind::LossCount, FindingKind::InPlaceBuffer}), Sameness::Buffers);
  EXPECT_EQ(same({FindingKind::InPlaceBuffer, FindingKind::UnknownOperator}), Sameness::Unknown);
  EXPECT_EQ(same({FindingKind::UnknownOperator, FindingKind::BatchNorm}), Sameness::No);
}

TEST(SplitVerdict, NamesEachUnknownOperatorOnceAndRandomDrawsApart) {
  const SplitVerdict verdict =
      splitVerdict({of(FindingKind::DataDependent), of(FindingKind::UnknownOperator), of(FindingKind::UnknownOperator)});
  EXPECT_EQ(verdict.sentence, "unknown: op, whose sizes depend on the data; op");
  const SplitVerdict draws = splitVerdict({of(FindingKind::Random)});
  EXPECT_TRUE(draws.draws);
  EXPECT_EQ(draws.sentence, "yes, apart from random draws");
}

}  // namespace
}  // namespace pw
