#include "simulator/model/fingerprint.h"

#include <gtest/gtest.h>

#include "simulator/plan/plan.h"
#include "simulator/plan/plan_fits.h"
#include "tests/support/graph_builder.h"

namespace pw {
namespace {

using test::GraphBuilder;

struct Shapes {
  std::int64_t width = 4;
  double epsilon = 1e-5;
  std::string weight = "up.weight", batchSymbol = "b", second = "relu";
  DType dtype = DType::Float32;
  bool trained = true;
};

ModelGraph graphOf(const Shapes& s = {}) {
  GraphBuilder build;
  TensorMeta rows = GraphBuilder::meta({{2, "Symbol('" + s.batchSymbol + "', positive=True, integer=True)"}, {s.width, ""}}, s.dtype);
  const ValueId x = build.input("x", rows);
  const ValueId weight = build.parameter(s.weight, "0:weights/weight_0", s.trained, GraphBuilder::shape({s.width, s.width}, s.dtype));
  build.within({"blocks.0"});
  const ValueId h = build.call("layer_norm", {{"input", x}, {"weight", weight}, {"eps", s.epsilon}}, "h", rows);
  const ValueId y = build.op(s.second, {h}, "y", rows);
  return build.done(y);
}

std::string difference(const Shapes& other) { return differenceTo(fingerprintOf(graphOf()), graphOf(other)); }

TEST(Fingerprint, IsThatOfAModelWithOtherWeightsNamesOfFilesAndSourceLines) {
  ModelGraph tuned = graphOf();
  tuned.name = "tuned";
  tuned.files = {"/elsewhere/tuned.pt2"};
  tuned.parameters[0].storage = "0:weights/weight_7";
  tuned.parameters[0].stored = StoredTensor{0, 4096, 64, {4, 1}, 0};
  tuned.nodes[0].sourceLine = "other.py:9 in forward";
  tuned.nodes[0].modules.back().className = "Renamed";
  EXPECT_EQ(fingerprintOf(tuned), fingerprintOf(graphOf()));
  EXPECT_EQ(differenceTo(fingerprintOf(graphOf()), tuned), "");
}

TEST(Fingerprint, DoesNotDependOnTheExampleBatchOrTheNameOfItsSize) {
  ModelGraph other = graphOf({.batchSymbol = "s77"});
  for (Value& value : other.values) {
    if (value.tensor && !value.tensor->sizes[0].expression.empty()) value.tensor->sizes[0].hint = 16;
  }
  EXPECT_EQ(fingerprintOf(other), fingerprintOf(graphOf()));
}

TEST(Fingerprint, NamesTheFirstParameterOrOperatorThatDiffers) {
  EXPECT_EQ(difference({.width = 6}), "parameter up.weight is float32 6x6 and was float32 4x4");
  EXPECT_EQ(difference({.dtype = DType::Float64}), "parameter up.weight is float64 4x4 and was float32 4x4");
  EXPECT_EQ(difference({.weight = "down.weight"}), "parameter up.weight is missing, but parameter down.weight");
  EXPECT_EQ(difference({.epsilon = 1e-6}),
            "operator 0 (torch.ops.aten.layer_norm.default in blocks.0) differs, or has different arguments");
  EXPECT_EQ(difference({.second = "gelu"}), "operator 1 (torch.ops.aten.gelu.default in blocks.0) differs, or has different arguments");
  EXPECT_NE(difference({.trained = false}), "");
}

TEST(Fingerprint, OfAPlanRefusesAModelWithAsManyOperators) {
  Plan plan;
  plan.modelName = "hand";
  plan.partition = cutGraph(graphOf(), {}, {{"b", 2}}, nullptr);
  EXPECT_NO_THROW(requireFits(plan, graphOf({.width = 6}))) << "a plan of an older version";
  plan.fingerprint = fingerprintOf(graphOf());
  EXPECT_NO_THROW(requireFits(plan, graphOf()));
  EXPECT_EQ(test::usageErrorOf([&] { requireFits(plan, graphOf({.width = 6})); }),
            "The plan for hand was not made for this model, hand: parameter up.weight is float32 6x6 and was float32 4x4; plan it again, "
            "or name the right archive with --model.");
}

}  // namespace
}  // namespace pw
