#include "simulator/model/loss_form.h"

#include <gtest/gtest.h>

#include "tests/support/graph_builder.h"

namespace pw {
namespace {

using test::GraphBuilder;
using Dims = std::vector<std::int64_t>;

const TensorMeta kNumber = GraphBuilder::shape({});

std::string formOf(const ModelGraph& graph) {
  const auto losses = ownLosses(graph);
  if (losses.size() != 1) return std::to_string(losses.size()) + " losses";
  switch (losses.front().form) {
    case LossForm::Mean: return "mean";
    case LossForm::Sum: return "sum";
    case LossForm::TargetMean: return "targets";
    case LossForm::Quotient: return "quotient";
    case LossForm::Other: return losses.front().why;
    case LossForm::Unknown: break;
  }
  return "unknown";
}

/// Numbers over the samples to make losses of.
struct Losses : GraphBuilder {
  ValueId x = input("x"), labels = input("labels", meta({batch()}, DType::Int64)), mask = input("mask");
  ValueId mean = call("mse_loss", {{"self", x}, {"target", mask}}, "mean", kNumber);
  ValueId targets = call("cross_entropy_loss", {{"self", x}, {"target", labels}, {"ignore_index", std::int64_t{7}}}, "targets", kNumber);
  ValueId sum = call("sum", {{"self", x}}, "sum", kNumber);
  ValueId count = call("sum", {{"self", mask}}, "count", kNumber);

  [[nodiscard]] std::string of(const std::string& op, const std::vector<NamedArgument>& arguments) {
    return formOf(done(call(op, arguments, "loss", kNumber)));
  }
};

TEST(LossForm, IsTheMeanOfMicrobatchesForMeansAndWhatKeepsThem) {
  EXPECT_EQ(Losses().of("mean", {{"self", Losses().x}}), "mean");
  Losses l;
  EXPECT_EQ(l.of("mul", {{"self", l.mean}, {"other", 0.5}}), "mean");
  Losses two;
  const ValueId more = two.call("mean", {{"self", two.x}}, "more", kNumber);
  EXPECT_EQ(two.of("add", {{"self", two.mean}, {"other", more}}), "mean");
  Losses rows;
  const ValueId each = rows.call("mean", {{"self", rows.x}, {"dim", Dims{0}}}, "each", GraphBuilder::shape({4}));
  EXPECT_EQ(rows.of("sum", {{"self", each}}), "mean") << "per feature, then added";
}

TEST(LossForm, OfALossWithIgnoredTargetsDependsOnTheirNumber) {
  Losses l;
  const ModelGraph graph = l.done(l.call("div", {{"self", l.targets}, {"other", 2.0}}, "half", kNumber));
  const auto losses = ownLosses(graph);
  ASSERT_EQ(losses.size(), 1U);
  EXPECT_EQ(losses[0].form, LossForm::TargetMean);
  EXPECT_EQ(losses[0].counted, l.labels);
  EXPECT_EQ(losses[0].ignored, 7);
  EXPECT_NE(lossBias(graph, losses[0]).find("targets that are not 7"), std::string::npos);
}

TEST(LossForm, OfAQuotientOfSumsDependsOnItsDivisor) {
  Losses l;
  const ValueId cut = l.call("clamp", {{"self", l.count}, {"min", std::int64_t{1}}}, "cut", kNumber);
  const ModelGraph graph = l.done(l.call("div", {{"self", l.sum}, {"other", cut}}, "loss", kNumber));
  const auto losses = ownLosses(graph);
  ASSERT_EQ(losses.size(), 1U);
  EXPECT_EQ(losses[0].form, LossForm::Quotient);
  EXPECT_EQ(losses[0].counted, cut);
}

TEST(LossForm, OfASumIsASumUnlessTheSamplesDivideIt) {
  Losses l;
  EXPECT_EQ(l.of("neg", {{"self", l.sum}}), "sum");
  Losses by;
  const ValueId samples = by.size(by.x, "n");
  EXPECT_EQ(by.of("div", {{"self", by.sum}, {"other", samples}}), "mean");
}

TEST(LossForm, IsNoneOfTheseForWhatIsNotLinear) {
  Losses e;
  EXPECT_EQ(e.of("exp", {{"self", e.mean}}), "exp of a mean over the samples");
  Losses product;
  EXPECT_EQ(product.of("mul", {{"self", product.mean}, {"other", product.mean}}), "a product of a mean over the samples and another");
  Losses both;
  EXPECT_EQ(both.of("add", {{"self", both.targets}, {"other", both.mean}}), "a mean over targets and a mean over the samples added");
  Losses largest;
  EXPECT_EQ(largest.of("amax", {{"self", largest.x}}), "amax over the samples");
  Losses weighted;
  const ValueId weights = weighted.parameter("weights");
  EXPECT_EQ(weighted.of("cross_entropy_loss", {{"self", weighted.x}, {"target", weighted.labels}, {"weight", weights}}),
            "cross_entropy_loss with class weights, which divides by the weights of the targets");
}

TEST(LossForm, IsUnknownWhereSizesDependOnTheData) {
  Losses l;
  const ValueId found =
      l.call("masked_select", {{"self", l.x}, {"mask", l.mask}}, "found", GraphBuilder::meta({GraphBuilder::dataDependent()}));
  EXPECT_EQ(l.of("mean", {{"self", found}}), "unknown");
}

TEST(LossForm, IsNothingForAnOutputWithoutSamples) {
  GraphBuilder g;
  static_cast<void>(g.input("x"));
  EXPECT_TRUE(ownLosses(g.done(g.call("sum", {{"self", g.parameter("w")}}, "penalty", kNumber))).empty());
}

}  // namespace
}  // namespace pw
