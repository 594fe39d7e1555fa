#include "app/gui/model/parts/row_findings.h"

#include <gtest/gtest.h>

#include "tests/app/gui/model/samples.h"

namespace pw::gui {
namespace {

Finding findingAt(FindingKind kind, const std::string& module, std::optional<NodeId> node) { return {kind, module, "op", "", "", node}; }

std::vector<FindingKind> kindsOf(const std::vector<const Finding*>& findings) {
  std::vector<FindingKind> kinds;
  for (const Finding* finding : findings) kinds.push_back(finding->kind);
  return kinds;
}

TEST(RowFindings, BelongToTheInnermostRowAndShowInAllAroundIt) {
  const SampleModel sample("gpt_small");
  const int block = sample.row("blocks.1"), attention = sample.row("blocks.1.attention");
  ASSERT_GT(attention, block);
  const NodeId node = sample.tree.row(attention).firstNode;
  const int innermost = sample.tree.rowOfNode[node.index()];
  const RowFindings findings(
      sample.tree,
      {findingAt(FindingKind::BatchMixing, "blocks.1.attention", node), findingAt(FindingKind::UnusedParameter, "blocks.1.attention", {}),
       findingAt(FindingKind::FixedBatch, "", {}), findingAt(FindingKind::UnusedParameter, "in.no.row", {})});
  EXPECT_EQ(findings.rowOf(0), innermost);
  EXPECT_EQ(findings.rowOf(1), attention);
  EXPECT_EQ(findings.rowOf(2), 0) << "of the whole model";
  EXPECT_EQ(findings.rowOf(3), 0) << "its module is no row";
  using Kinds = std::vector<FindingKind>;
  EXPECT_EQ(kindsOf(findings.inside(sample.tree, block)), (Kinds{FindingKind::BatchMixing, FindingKind::UnusedParameter}));
  EXPECT_EQ(kindsOf(findings.of(block)), Kinds());
  EXPECT_EQ(kindsOf(findings.of(0)), (Kinds{FindingKind::FixedBatch, FindingKind::UnusedParameter}));
  EXPECT_EQ(findings.inside(sample.tree, 0).size(), 4U);
  EXPECT_TRUE(findings.inside(sample.tree, sample.row("blocks.2")).empty());
}

TEST(RowFindings, AreMarkedByTheirStrongestEffectAndNotForNotes) {
  const Finding note = findingAt(FindingKind::Random, "", {}), change = findingAt(FindingKind::BatchNorm, "", {}),
                limit = findingAt(FindingKind::DataDependent, "", {});
  EXPECT_FALSE(markOf({}).has_value());
  EXPECT_FALSE(markOf({&note}).has_value());
  EXPECT_EQ(markOf({&note, &change}), FindingEffect::ChangesResults);
  EXPECT_EQ(markOf({&change, &limit, &note}), FindingEffect::Limits);
}

}  // namespace
}  // namespace pw::gui
