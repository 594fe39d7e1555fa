// The table of operators: one row for each, found by target.
#include "simulator/operators/operators.h"

#include <gtest/gtest.h>

#include <set>

#include "simulator/costs/operator_costs.h"
#include "simulator/model/graph_facts.h"
#include "tests/support/graph_builder.h"

namespace pw::test {
namespace {

const Operator& rowOf(const std::string& name) { return operatorOf("torch.ops.aten." + name + ".default"); }

TEST(Operators, HaveOneRowEach) {
  std::set<std::string_view> names;
  for (const auto family : operators::families()) {
    for (const Operator& row : family) EXPECT_TRUE(names.insert(row.name).second) << row.name << " has two rows";
  }
  EXPECT_GT(names.size(), 600U);
}

TEST(Operators, AreFoundInPlaceAndOverloadedToo) {
  EXPECT_EQ(operatorOf("torch.ops.aten.add.Tensor").name, "add");
  EXPECT_EQ(rowOf("relu_").name, "relu");
  EXPECT_EQ(rowOf("__iand__").name, "__iand__");
  EXPECT_EQ(rowOf("no_such_operator").name, "");
  EXPECT_EQ(operatorOf("torch.ops.mine.add.default").name, "") << "another library's operator may do anything";
  EXPECT_EQ(operatorOf("_operator.add").dimensions, DimensionRule::Unknown);
}

TEST(Operators, WithAWeightPartNameTheirWeights) {
  for (const auto family : operators::families()) {
    for (const Operator& row : family) EXPECT_EQ(row.weightPart == WeightPart::None, row.weights[0].empty()) << row.name;
  }
}

TEST(Operators, ThatAreViewsMoveNothingUnlessTheyMayCopy) {
  const std::set<std::string_view> mayCopy{"contiguous", "to", "reshape"};
  for (const auto family : operators::families()) {
    for (const Operator& row : family) {
      EXPECT_TRUE(row.result != Result::View || (row.work == Work::Memory) == mayCopy.contains(row.name)) << row.name;
    }
  }
}

TEST(Operators, ADropoutThatIsOffCostsNothing) {
  Node node{"torch.ops.aten.dropout.default", {{"p", 0.5}, {"train", true}}, {}, false, {}, ""};
  EXPECT_EQ(countingOf(node), Counting::ByBytes);
  node.inputs[1].value = false;
  EXPECT_EQ(countingOf(node), Counting::Nothing);
}

TEST(WaitsForDevice, WhereANumberASizeOrAMaskIsRead) {
  GraphBuilder b;
  const ValueId x = b.input("x"), mask = b.input("mask", GraphBuilder::rows(DType::Bool)),
                rows = b.input("rows", GraphBuilder::rows(DType::Int64));
  const auto waits = [&](const std::string& op, const std::vector<ValueId>& reads) {
    b.op(op, reads, op);
    return waitsForDevice(b.graph(), b.graph().nodes.back());
  };
  EXPECT_TRUE(waits("item", {x}));
  EXPECT_TRUE(waits("nonzero", {mask}));
  EXPECT_TRUE(waits("linalg_inv", {x})) << "it checks whether there is an inverse";
  EXPECT_TRUE(waits("index", {x, mask}));
  EXPECT_FALSE(waits("index", {x, rows}));
  EXPECT_FALSE(waits("index", {mask, rows})) << "a mask that is indexed is no index";
  EXPECT_FALSE(waits("linear", {x, x}));
}

}  // namespace
}  // namespace pw::test
