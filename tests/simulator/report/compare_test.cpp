#include <algorithm>
#include <tuple>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "schedules/generate.h"
#include "simulator/report/compare.h"
#include "simulator/report/json.h"
#include "simulator/report/metrics.h"
#include "simulator/step/cost_table.h"
#include "tests/support/random_costs.h"

namespace pw {
namespace {

Trace example() {
  SyntheticCosts costs;
  costs.forward = {10};
  costs.backward = {20};
  costs.latency = 3;
  CostTable table = syntheticTable(costs, 2);
  table.stages[0].optimizer = 50;
  return simulate(generate("1f1b", {2, 2, 3}), table);
}

const GroupError& group(const std::vector<GroupError>& groups, const std::string& name) {
  const auto at = std::find_if(groups.begin(), groups.end(), [&](const GroupError& g) { return g.group == name; });
  if (at == groups.end()) throw std::out_of_range(name);
  return *at;
}

TEST(Compare, ATraceWithItselfHasNoErrors) {
  const Comparison same = compare(example(), example());
  EXPECT_EQ(same.makespanError, 0);
  EXPECT_EQ(same.stepError, 0);
  EXPECT_EQ(same.actionError, 0);
  EXPECT_EQ(same.matched, 2 * 2 * 3);
  EXPECT_EQ(same.unmatched, 0);
  for (const auto& groups : {same.byKind, same.byStage, same.byRank}) {
    for (const GroupError& error : groups) {
      EXPECT_EQ(error.durationError, 0);
      EXPECT_EQ(error.contribution, 0);
    }
  }
}

TEST(Compare, ClocksNeedNotAgree) {
  Trace later = example();
  for (Span& span : later.spans) {
    span.start += 12345;
    span.end += 12345;
  }
  EXPECT_EQ(compare(example(), later), compare(example(), example()));
}

TEST(Compare, EverythingTwiceAsLongIsAnErrorOfOne) {
  Trace slow = example();
  for (Span& span : slow.spans) {
    span.start *= 2;
    span.end *= 2;
  }
  const Comparison comparison = compare(example(), slow);
  EXPECT_DOUBLE_EQ(comparison.makespanError, 1.0);
  EXPECT_DOUBLE_EQ(comparison.stepError, 1.0);
  EXPECT_DOUBLE_EQ(group(comparison.byKind, "B").durationError, 1.0);
  EXPECT_DOUBLE_EQ(group(comparison.byKind, "SEND_F").durationError, 1.0);
  EXPECT_DOUBLE_EQ(group(comparison.byStage, "stage 1").durationError, 1.0);
  EXPECT_DOUBLE_EQ(group(comparison.byRank, "rank 0").durationError, 1.0);
  EXPECT_EQ(group(comparison.byRank, "rank 0").contribution, 3 * (10 + 20));
  EXPECT_EQ(group(comparison.byKind, "OPTIMIZER").contribution, 50);
}

TEST(Compare, ActionErrorIsTheMeanStartErrorOverTheMeasuredMakespan) {
  Trace predicted;
  predicted.ranks = 1;
  const auto span = [](SpanKind kind, int m, Ns start, Ns end) {
    return Span{Rank(0), kind, Stage(0), Microbatch(m), Rank(0), 0, start, end};
  };
  predicted.spans = {span(SpanKind::Forward, 0, 0, 10), span(SpanKind::Forward, 1, 10, 20), span(SpanKind::Backward, 0, 20, 40)};
  Trace measured = predicted;
  measured.spans[1] = span(SpanKind::Forward, 1, 14, 22);
  measured.spans[2] = span(SpanKind::Backward, 0, 30, 50);
  const Comparison comparison = compare(predicted, measured);
  EXPECT_DOUBLE_EQ(comparison.actionError, (0.0 + 4.0 + 10.0) / 3.0 / 50.0);
  EXPECT_DOUBLE_EQ(comparison.makespanError, 0.25);
  EXPECT_DOUBLE_EQ(group(comparison.byKind, "F").durationError, -0.1);
}

TEST(Compare, CountsActionsFoundInOneTraceOnly) {
  Trace fewer = example();
  fewer.spans.erase(std::find_if(fewer.spans.begin(), fewer.spans.end(), [](const Span& s) { return s.kind == SpanKind::Backward; }));
  Trace other = example();
  for (Span& span : other.spans) {
    if (span.kind == SpanKind::Backward && span.microbatch == Microbatch(2)) span.kind = SpanKind::BackwardInput;
  }
  EXPECT_EQ(compare(example(), fewer).unmatched, 1);
  EXPECT_EQ(compare(fewer, example()).unmatched, 1);
  const Comparison mixed = compare(example(), other);
  EXPECT_EQ(mixed.matched, 10);
  EXPECT_EQ(mixed.unmatched, 4);
  EXPECT_EQ(group(mixed.byKind, "I").durationError, 0.0);  // nothing was predicted
  EXPECT_EQ(group(mixed.byKind, "I").contribution, 40);
}

TEST(Compare, MatchesAWholeBackwardWithASplitOne) {
  // Two ranks, F 10, B 20 = I 12 + W 8; costs that leave no doubt which of them a sum holds.
  SyntheticCosts costs;
  costs.forward = {10};
  costs.backward = {20};
  costs.backwardInput = {12};
  costs.backwardWeight = {8};
  const CostTable table = syntheticTable(costs, 2);
  const Trace whole = simulate(generate("1f1b", {2, 2, 3}), table), split = simulate(generate("zb-h1", {2, 2, 3}), table);
  const Comparison comparison = compare(whole, split), back = compare(split, whole);
  EXPECT_EQ(comparison.matched, 12) << "F and backward of three microbatches on two ranks";
  EXPECT_EQ(comparison.matchedSplit, 6);
  EXPECT_EQ(comparison.unmatched, 0) << "a W belongs to the backward that is matched";
  const GroupError& backwards = group(comparison.byKind, "B (I + W)");
  EXPECT_EQ(backwards.predicted, 6 * 20);
  EXPECT_EQ(backwards.measured, 6 * (12 + 8));
  EXPECT_EQ(backwards.contribution, 0);
  for (const char* kind : {"B", "I", "W"}) EXPECT_THROW((void)group(comparison.byKind, kind), std::out_of_range) << kind;
  EXPECT_EQ(std::tuple(back.matched, back.matchedSplit, back.unmatched), std::tuple(12, 6, 0));
  EXPECT_EQ(back.byKind[1].group, "B (I + W)");
  const Comparison same = compare(split, split);
  EXPECT_EQ(std::tuple(same.matched, same.matchedSplit), std::tuple(18, 0));
  EXPECT_EQ(group(same.byKind, "I").measured, 6 * 12) << "what is split in both stays apart";
}

TEST(Compare, MatchesTheStartsOfBAndI) {
  const auto span = [](SpanKind kind, Ns start, Ns end) { return Span{Rank(0), kind, Stage(0), Microbatch(0), Rank(0), 0, start, end}; };
  Trace whole, split;
  whole.ranks = split.ranks = 1;
  whole.spans = {span(SpanKind::Forward, 0, 10), span(SpanKind::Backward, 10, 30)};
  split.spans = {span(SpanKind::Forward, 0, 10), span(SpanKind::BackwardInput, 16, 28), span(SpanKind::BackwardWeight, 40, 50)};
  EXPECT_DOUBLE_EQ(compare(whole, split).actionError, (0.0 + 6.0) / 2 / 50);
  EXPECT_EQ(group(compare(whole, split).byKind, "B (I + W)").contribution, 2) << "20 against 12 + 10";
}

TEST(Compare, GroupsStandInTheOrderOfKindsStagesAndRanks) {
  const Comparison comparison = compare(example(), example());
  std::vector<std::string> names;
  for (const auto& groups : {comparison.byKind, comparison.byStage, comparison.byRank}) {
    for (const GroupError& error : groups) names.push_back(error.group);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"F", "B", "SEND_F", "SEND_B", "WAIT_F", "WAIT_B", "OPTIMIZER", "stage 0", "stage 1", "rank 0",
                                             "rank 1"}));
  names.clear();
  for (const GroupError& error : comparison.byCause) names.push_back(error.group);
  EXPECT_EQ(names, (std::vector<std::string>{"F of stage 0", "F of stage 1", "B of stage 0", "B of stage 1", "OPTIMIZER"}))
      << "messages and waits follow from others";
}

TEST(Compare, EmptyTracesCompareEqual) {
  const Comparison comparison = compare(Trace{}, Trace{});
  EXPECT_EQ(comparison, Comparison{});
}

TEST(Compare, JsonHasTheDocumentedNames) {
  const auto json = nlohmann::json::parse(comparisonJson(judgeSteps({example()}, {example()}), "As predicted."));
  EXPECT_EQ(json.at("makespan_error"), 0.0);
  EXPECT_EQ(json.at("action_error"), 0.0);
  EXPECT_EQ(json.at("by_kind")[0].at("group"), "F");
  EXPECT_EQ(json.at("by_kind")[0].at("predicted_ns"), 60);
  EXPECT_EQ(json.at("by_stage").size(), 2u);
  EXPECT_EQ(json.at("by_rank").size(), 2u);
  EXPECT_EQ(json.at("verdict"), nlohmann::json({{"sentence", "As predicted."}, {"main", nullptr}}));
}

}  // namespace
}  // namespace pw
