#include "simulator/model/batch.h"

#include <gtest/gtest.h>

#include "tests/support/graph_builder.h"

namespace pw {
namespace {

using test::GraphBuilder;

constexpr auto kSymbol = "Symbol('b', positive=True, integer=True)";

SymbolicInt sized(std::int64_t hint, const std::string& expression) { return {hint, expression}; }

TEST(BatchAxis, IsTheDimensionInWhichTheBatchSymbolStands) {
  GraphBuilder g;
  const ValueId rows = g.input("rows");
  const ValueId second = g.input("time_first", GraphBuilder::meta({{7, ""}, GraphBuilder::batch(), {4, ""}}));
  const ValueId mask = g.input("mask", GraphBuilder::shape({2, 4}));  // two rows, as the batch at export has, but no symbol
  const ValueId scalar = g.input("scale", GraphBuilder::shape({}));
  EXPECT_EQ(batchAxis(g.graph(), rows), (BatchAxis{0, 1}));
  EXPECT_EQ(batchAxis(g.graph(), second), (BatchAxis{1, 1}));
  EXPECT_EQ(batchAxis(g.graph(), mask), std::nullopt);
  EXPECT_EQ(batchAxis(g.graph(), scalar), std::nullopt);
}

TEST(BatchAxis, CountsTheRowsOfASampleInAFlattenedValue) {
  GraphBuilder g;
  const ValueId in = g.input("in");
  const ValueId flat =
      g.op("view", {in}, "flat", GraphBuilder::meta({sized(16, std::string("Mul(Integer(8), ") + kSymbol + ")"), {5, ""}}));
  const ValueId longer =
      g.op("pad", {in}, "longer", GraphBuilder::meta({sized(3, std::string("Add(") + kSymbol + ", Integer(1))"), {4, ""}}));
  const ValueId found = g.op("nonzero", {in}, "found", GraphBuilder::meta({GraphBuilder::dataDependent()}));
  EXPECT_EQ(batchAxis(g.graph(), flat), (BatchAxis{0, 8}));
  EXPECT_EQ(batchAxis(g.graph(), longer), std::nullopt) << "b + 1 rows are no rows of samples";
  EXPECT_EQ(batchAxis(g.graph(), found), std::nullopt) << "a size that the data decides";
}

TEST(BatchAxis, TakesTheOtherSymbolsOfASizeAsExported) {
  GraphBuilder g;
  const SymbolicInt length = sized(6, "Symbol('t', positive=True, integer=True)");
  const ValueId in = g.input("in", GraphBuilder::meta({GraphBuilder::batch(), length}));
  const ValueId flat = g.op("view", {in}, "flat",
                            GraphBuilder::meta({sized(12, std::string("Mul(") + kSymbol + ", Symbol('t', positive=True, integer=True))")}));
  EXPECT_EQ(batchAxis(g.graph(), flat), (BatchAxis{0, 6}));
}

TEST(BatchAxis, OfAFixedBatchIsDimensionZeroWhereItIsTheBatch) {
  GraphBuilder g;
  const ValueId in = g.input("in", GraphBuilder::shape({2, 4}));
  const ValueId other = g.input("other", GraphBuilder::shape({2}));
  const ValueId table = g.input("table", GraphBuilder::shape({8, 4}));  // a multiple, but an input is cut only where it is the batch
  const ValueId flat = g.op("view", {in}, "flat", GraphBuilder::shape({8, 4}));
  const ValueId odd = g.op("view", {in}, "odd", GraphBuilder::shape({7}));
  const ValueId loss = g.op("mean", {in}, "loss", GraphBuilder::shape({}));
  EXPECT_EQ(batchAxis(g.graph(), in), (BatchAxis{0, 1}));
  EXPECT_EQ(batchAxis(g.graph(), other), (BatchAxis{0, 1}));
  EXPECT_EQ(batchAxis(g.graph(), table), std::nullopt);
  EXPECT_EQ(batchAxis(g.graph(), flat), (BatchAxis{0, 4}));
  EXPECT_EQ(batchAxis(g.graph(), odd), std::nullopt);
  EXPECT_EQ(batchAxis(g.graph(), loss), std::nullopt);
}

TEST(BatchAxis, OfAFlattenedSequenceFirstValueHasItsSamplesInBlocks) {
  GraphBuilder g;
  const ValueId in = g.input("in", GraphBuilder::meta({{7, ""}, GraphBuilder::batch(), {4, ""}}));
  const TensorMeta rows = GraphBuilder::meta({sized(14, std::string("Mul(Integer(7), ") + kSymbol + ")"), {4, ""}});
  const ValueId flat = g.call("view", {{"self", in}}, "flat", rows);
  const TensorMeta turned = GraphBuilder::meta({GraphBuilder::batch(), {7, ""}, {4, ""}});
  const ValueId first = g.call("transpose", {{"self", in}, {"dim0", std::int64_t{0}}, {"dim1", std::int64_t{1}}}, "first", turned);
  const ValueId plain = g.call("reshape", {{"self", first}}, "plain", rows);
  EXPECT_EQ(batchAxis(g.graph(), flat), (BatchAxis{0, 1, 7})) << "row t * B + s is of sample s";
  EXPECT_EQ(batchAxis(g.graph(), plain), (BatchAxis{0, 7, 1}));
}

}  // namespace
}  // namespace pw
