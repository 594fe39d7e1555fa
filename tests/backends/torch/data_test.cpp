#include "backends/torch/stage/data.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <memory>
#include <set>

#include "backends/checkpoints/writer.h"
#include "backends/torch/program/types.h"
#include "tests/support/graph_builder.h"

namespace pw {
namespace {

using test::GraphBuilder;

const std::vector<std::int64_t> kSizes{3, 2, 2};  // microbatches of a batch of 7
constexpr std::int64_t kBatch = 7;

/// A model with inputs `x` [b, 4], `sideways` [5, b], `mask` [4, 4] and `scale` [], and the output `y`.
struct Model {
  GraphBuilder g;
  ValueId x = g.input("x");
  ValueId sideways = g.input("sideways", GraphBuilder::meta({{5, ""}, GraphBuilder::batch()}));
  ValueId mask = g.input("mask", GraphBuilder::shape({4, 4}));
  ValueId scale = g.input("scale", GraphBuilder::shape({}));
  ValueId y;

  explicit Model(const TensorMeta& output = GraphBuilder::rows()) {
    y = g.op("relu", {x}, "y", output);
    g.output(y);
  }
  [[nodiscard]] BatchSource source(const std::string& loss, const DataOptions& data = {}, std::uint64_t seed = 5) {
    return {g.graph(), lossSpec(g.graph(), parseLoss(loss)), kSizes, seed, data};
  }
};

class TorchData : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }

  using Tensors = std::map<std::string, at::Tensor>;

  /// A file's tensors of `samples` samples, in which all numbers differ.
  static Tensors tensors(std::int64_t samples) {
    return {{"x", at::arange(samples * 4, at::kFloat).reshape({samples, 4})},
            {"sideways", at::arange(samples * 5, at::kFloat).reshape({5, samples}) + 100},
            {"mask", at::arange(16, at::kFloat).reshape({4, 4}) + 200},
            {"scale", at::scalar_tensor(300.0, at::kFloat)},
            {"target", at::arange(samples, at::kLong).remainder(4)}};
  }
  DataOptions write(const Tensors& tensors) const {
    CheckpointWriter writer(path_);
    for (const auto& [name, tensor] : tensors) {
      writer.add(name, dtypeOf(tensor.scalar_type()), tensor.sizes().vec(), static_cast<const std::byte*>(tensor.const_data_ptr()));
    }
    writer.finish({});
    DataOptions data;
    data.file = path_;
    return data;
  }
  std::string refusal(const Tensors& tensors, const std::string& loss = "cross_entropy") const {
    return test::usageErrorOf([&] {
      Model model;
      BatchSource source = model.source(loss, write(tensors));
      source.beginStep(0);
    });
  }

  std::string path_ =
      testing::TempDir() + "/pw_data_" + testing::UnitTest::GetInstance()->current_test_info()->name() + std::to_string(getpid()) + ".pt";
};

TEST_F(TorchData, CutsInputsWhereTheirBatchStandsAndPassesOthersWhole) {
  Model model;
  const Tensors all = tensors(kBatch);
  BatchSource source = model.source("cross_entropy", write(all));
  source.beginStep(0);
  std::int64_t begin = 0;
  for (std::size_t m = 0; m < kSizes.size(); ++m) {
    EXPECT_TRUE(at::equal(source.input(model.x, m), all.at("x").narrow(0, begin, kSizes[m])));
    EXPECT_TRUE(at::equal(source.input(model.sideways, m), all.at("sideways").narrow(1, begin, kSizes[m])));
    EXPECT_TRUE(source.input(model.sideways, m).is_contiguous());
    EXPECT_TRUE(at::equal(source.input(model.mask, m), all.at("mask")));
    EXPECT_EQ(source.input(model.scale, m).item<float>(), 300);
    begin += kSizes[m];
  }
}

TEST_F(TorchData, InputsAreCopiesThatTheModelMayChange) {
  Model model;
  BatchSource source = model.source("cross_entropy", write(tensors(kBatch)));
  source.beginStep(0);
  source.input(model.x, 0).zero_();
  source.input(model.mask, 0).zero_();
  EXPECT_EQ(source.input(model.x, 0)[0][1].item<float>(), 1);
  EXPECT_EQ(source.input(model.mask, 1)[0][0].item<float>(), 200);
}

TEST_F(TorchData, StepsWrapRoundAfterTheLastSample) {
  Model model;
  constexpr std::int64_t kSamples = 2 * kBatch + 3;
  const Tensors all = tensors(kSamples);
  BatchSource source = model.source("cross_entropy", write(all));
  for (const int step : {0, 1, 2, 3, 5, 1'000'000'007}) {
    source.beginStep(step);
    const auto rows = [&](std::int64_t first, std::int64_t count) {
      return (at::arange(first, first + count, at::kLong) + std::int64_t{step} * kBatch).remainder(kSamples);
    };
    EXPECT_TRUE(at::equal(source.input(model.x, 0), all.at("x").index_select(0, rows(0, 3)))) << step;
    EXPECT_TRUE(at::equal(source.input(model.x, 1), all.at("x").index_select(0, rows(3, 2)))) << step;
    EXPECT_TRUE(at::equal(source.input(model.sideways, 2), all.at("sideways").index_select(1, rows(5, 2)))) << step;
  }
}

/// Of 17 samples two batches of 7 are seen once; a third would take four of them twice; 17 batches are seven passes.
TEST_F(TorchData, AnEvaluationCountsNoSampleMoreOftenThanOthers) {
  Model model;
  DataOptions data = write(tensors(2 * kBatch + 3));
  for (const std::int64_t steps : {1, 2, 17}) {
    data.evaluatedSteps = steps;
    EXPECT_NO_THROW(static_cast<void>(model.source("cross_entropy", data))) << steps;
  }
  for (const std::int64_t steps : {3, 7, 16}) {
    data.evaluatedSteps = steps;
    try {
      static_cast<void>(model.source("cross_entropy", data));
      FAIL() << steps;
    } catch (const UsageError& error) {
      EXPECT_EQ(std::string(error.what()),
                "The data file " + path_ + " holds 17 samples, so " + std::to_string(steps) +
                    " batches of 7 would count some of them more often than others; evaluate 2 (--steps), or plan "
                    "for a batch that 17 is a multiple of.");
    }
  }
}

/// An output's form: its samples stand in `dimension`, `rows` rows of each.
struct Form {
  TensorMeta meta;
  std::int64_t dimension, rows;
};

std::vector<Form> forms() {
  return {{GraphBuilder::rows(), 0, 1},
          {GraphBuilder::meta({{4, "Mul(Integer(2), Symbol('b', positive=True, integer=True))"}, {4, ""}}), 0, 2},
          {GraphBuilder::meta({{5, ""}, GraphBuilder::batch(), {4, ""}}), 1, 1}};
}

at::Tensor gradientOf(const at::Tensor& loss, at::Tensor& leaf) {
  leaf.mutable_grad().reset();
  loss.backward();
  return leaf.grad().clone();
}

TEST_F(TorchData, LossesAndGradientsOfUnevenMicrobatchesAreThoseOfTheBatch) {
  for (const Form& form : forms()) {
    for (const std::string loss : {"cross_entropy", "mse", "sum"}) {
      SCOPED_TRACE(loss + ", samples in dimension " + std::to_string(form.dimension));
      Model model(form.meta);
      std::vector<std::int64_t> shape{form.rows * kBatch, 4};
      if (form.dimension == 1) shape = {5, kBatch, 4};
      at::Tensor output = at::sin(at::arange(c10::multiply_integers(shape), at::kFloat)).reshape(shape).set_requires_grad(true);
      Tensors file = tensors(kBatch);
      file["target"] = loss == "mse" ? at::cos(output).detach().contiguous()
                                     : at::arange(output.numel() / 4, at::kLong)
                                           .remainder(4)
                                           .reshape(at::IntArrayRef(shape).slice(0, shape.size() - 1))
                                           .contiguous();
      if (loss == "cross_entropy") file["target"].select(form.dimension, 0).fill_(-100);  // ignored, so microbatch 0 has fewer targets
      const at::Tensor whole = loss == "mse"   ? at::mse_loss(output, file["target"])
                               : loss == "sum" ? output.sum() / kBatch
                                               : at::cross_entropy_loss(output.reshape({-1, 4}), file["target"].reshape({-1}));
      const at::Tensor gradient = gradientOf(whole, output);
      const auto check = [&](const char* how, const at::Tensor& actual) {
        EXPECT_TRUE(at::allclose(actual, whole, 1.3e-6, 1e-6)) << how;
        EXPECT_TRUE(at::allclose(gradientOf(actual, output), gradient, 1.3e-6, 1e-6)) << how;
      };
      DataOptions data = write(file);
      BatchSource cut = model.source(loss, data);
      data.masked = true;
      BatchSource masked = model.source(loss, data);
      cut.beginStep(0);
      masked.beginStep(0);
      std::vector<at::Tensor> parts;
      std::int64_t begin = 0;
      for (const std::int64_t size : kSizes) {
        parts.push_back(output.narrow(form.dimension, begin * form.rows, size * form.rows));
        begin += size;
      }
      check("one by one", cut.loss(parts[0], 0) + cut.loss(parts[1], 1) + cut.loss(parts[2], 2));
      check("over the batch", cut.lossOver(parts, 0));
      check("by replica", cut.lossOver({parts[0]}, 0) + cut.lossOver({parts[1], parts[2]}, 1));
      check("masked", masked.loss(output, 0) + masked.loss(output, 1) + masked.loss(output, 2));
      check("masked over the batch", masked.lossOver({output, output, output}, 0));
      EXPECT_TRUE(at::equal(masked.input(model.x, 1), file["x"])) << "masked microbatches see the whole batch";
    }
  }
}

TEST_F(TorchData, ALossThatTheModelComputesIsWeightedBySamples) {
  Model model(GraphBuilder::shape({}));
  BatchSource source = model.source("output:y");
  source.beginStep(0);
  const auto number = [](double x) { return at::scalar_tensor(x, at::kFloat); };
  EXPECT_NEAR(source.loss(number(14), 0).item<double>(), 6, 1e-6);                   // 14 · 3 / 7
  EXPECT_NEAR(source.lossOver({number(14), number(7)}, 1).item<double>(), 6, 1e-6);  // (14 · 2 + 7 · 2) / 7
  EXPECT_NE(test::usageErrorOf([&] { static_cast<void>(source.loss(at::zeros({2}), 0)); }).find("a loss is a single number"),
            std::string::npos);
}

TEST_F(TorchData, KeepsOfSyntheticDataWhatIsRead) {
  Model model;
  BatchSource whole = model.source("mse"), part = model.source("mse"), last = model.source("mse");
  part.keepOnly({model.sideways}, false);
  last.keepOnly({}, true);
  for (BatchSource* source : {&whole, &part, &last}) source->beginStep(0);
  EXPECT_TRUE(at::equal(part.input(model.sideways, 1), whole.input(model.sideways, 1)));
  const at::Tensor output = whole.input(model.x, 0);
  EXPECT_TRUE(at::equal(last.loss(output, 0), whole.loss(output, 0)));
}

TEST_F(TorchData, SyntheticNumbersDependOnTheSeedAlone) {
  Model model;
  BatchSource source = model.source("mse", {}, 5);
  source.beginStep(0);
  // Stream k of seed s starts at s · 1000003 + k, k from 1 in the order of the inputs, then the targets.
  const auto drawn = [](at::IntArrayRef shape, std::uint64_t stream) {
    return at::randn(shape, at::detail::createCPUGenerator(5 * 1000003U + stream), at::TensorOptions().dtype(at::kFloat));
  };
  EXPECT_TRUE(at::equal(source.input(model.x, 1), drawn({kBatch, 4}, 1).narrow(0, 3, 2)));
  EXPECT_TRUE(at::equal(source.input(model.sideways, 1), drawn({5, kBatch}, 2).narrow(1, 3, 2)));
  EXPECT_TRUE(at::equal(source.input(model.mask, 1), drawn({4, 4}, 3)));
  const at::Tensor output = at::zeros({kBatch, 4});
  EXPECT_TRUE(at::allclose(source.lossOver(output.split_with_sizes(kSizes), 0), drawn({kBatch, 4}, 5).square().mean()));
  const at::Tensor first = source.input(model.x, 0);
  source.beginStep(1);
  EXPECT_TRUE(at::equal(source.input(model.x, 0), first)) << "the same batch in every step";
}

TEST_F(TorchData, SaysWhatIsWrongWithAFile) {
  const auto with = [](const std::string& name, const at::Tensor& tensor) {
    Tensors all = tensors(kBatch);
    all[name] = tensor;
    return all;
  };
  Tensors lacking = tensors(kBatch);
  lacking.erase("mask");
  EXPECT_EQ(refusal(lacking), "The data file " + path_ + " lacks the tensor mask; name its tensors after the model's inputs, and target.");
  EXPECT_EQ(refusal(with("x", at::zeros({kBatch, 4}, at::kDouble))),
            "Tensor x of " + path_ + " is of type float64, but the model takes float32; convert it before saving.");
  EXPECT_EQ(refusal(with("x", at::zeros({kBatch, 3}))),
            "Tensor x of " + path_ + " has the shape [7, 3], but the model takes [samples, 4].");
  EXPECT_EQ(refusal(with("sideways", at::zeros({kBatch, 5}))),
            "Tensor sideways of " + path_ + " has the shape [7, 5], but the model takes [5, samples].");
  EXPECT_EQ(refusal(with("mask", at::zeros({kBatch, 4, 4}))),
            "Tensor mask of " + path_ + " has the shape [7, 4, 4], but the model takes [4, 4].");
  EXPECT_EQ(refusal(with("target", at::zeros({kBatch}, at::kInt))),
            "Tensor target of " + path_ + " is of type int32, but the model takes int64; convert it before saving.");
  EXPECT_EQ(refusal(with("target", at::zeros({kBatch, 1}, at::kLong))),
            "Tensor target of " + path_ + " has the shape [7, 1], but the model takes [samples].");
  EXPECT_EQ(refusal(with("target", at::zeros({kBatch})), "mse"),
            "Tensor target of " + path_ + " has the shape [7], but the model takes [samples, 4].");
  EXPECT_EQ(refusal(tensors(6)), "Tensor x of " + path_ + " holds 6 samples, fewer than one batch of 7.");
  EXPECT_EQ(refusal(with("target", at::zeros({8}, at::kLong))), "Tensor target of " + path_ + " holds 8 samples, but sideways 7.");
  EXPECT_EQ(refusal(with("target", at::full({kBatch}, 4, at::kLong))),
            "Tensor target of " + path_ + " holds the class 4, but y has 4 classes, from 0 (and -100 for ignored ones).");
  EXPECT_EQ(refusal(with("target", at::full({kBatch}, -100, at::kLong))),
            "All classes of tensor target of " + path_ +
                " are -100, which is ignored, in step 0: it has no loss; check the data, or leave these samples out.");
}

TEST_F(TorchData, RefusesABatchOfWhichNothingCountsForTheLoss) {
  Model model;
  BatchSource source = model.source("sum", write(tensors(kBatch)));
  source.beginStep(0);
  EXPECT_EQ(test::usageErrorOf([&] {
              source.weigh({0, 0}, 0);
            }),
            "Nothing in the batch of " + path_ +
                " counts for the loss (--loss-count), so the step has none; check the data, or leave these "
                "samples out.");
  EXPECT_EQ(test::usageErrorOf([&] { source.weigh({0, 2}, 2); }), test::usageErrorOf([] {}));
}

/// A feed of these tensors, the same in every step.
DataOptions feedOf(const std::map<std::string, at::Tensor>& tensors, const std::string& name = {}) {
  NamedTensors batch;
  for (const auto& [key, tensor] : tensors) batch[key] = std::make_shared<at::Tensor>(tensor);
  DataOptions data;
  data.feed = std::make_shared<BatchFeed>(BatchFeed{name, [batch](int) { return batch; }});
  return data;
}

TEST_F(TorchData, AFeedGivesTheBatchOfEachStep) {
  Model model;
  DataOptions data;
  data.feed = std::make_shared<BatchFeed>(BatchFeed{"", [](int step) {
                                                      NamedTensors batch;
                                                      for (const auto& [name, tensor] : tensors(kBatch))
                                                        batch[name] = std::make_shared<at::Tensor>(name == "x" ? tensor + step : tensor);
                                                      return batch;
                                                    }});
  BatchSource source = model.source("cross_entropy", data);
  std::set<std::uint64_t> digests;
  for (const int step : {0, 1, 4}) {
    source.beginStep(step);
    EXPECT_TRUE(at::equal(source.input(model.x, 1), (tensors(kBatch).at("x") + step).narrow(0, 3, 2))) << step;
    EXPECT_TRUE(at::equal(source.input(model.sideways, 2), tensors(kBatch).at("sideways").narrow(1, 5, 2))) << step;
    digests.insert(source.digest());
    BatchSource same = model.source("cross_entropy", data);
    same.beginStep(step);
    EXPECT_EQ(same.digest(), source.digest());
  }
  EXPECT_EQ(digests.size(), 3U) << "batches that differ have different digests";
}

TEST_F(TorchData, ABatchThatDoesNotFitIsRefusedInItsStep) {
  const auto refusal = [](Tensors tensors, const std::string& name = {}) {
    return test::usageErrorOf([&] {
      Model model;
      BatchSource source = model.source("cross_entropy", feedOf(tensors, name));
      source.beginStep(2);
    });
  };
  EXPECT_EQ(refusal(tensors(kBatch)), "no error");
  Tensors lacking = tensors(kBatch);
  lacking.erase("target");
  EXPECT_EQ(refusal(lacking), "The batch of step 2 lacks the tensor target; name its tensors after the model's inputs, and target.");
  EXPECT_EQ(refusal(lacking, "mine:all"),
            "Batch 2 of mine:all lacks the tensor target; name its tensors after the model's inputs, and target.");
  EXPECT_EQ(refusal(tensors(6)), "Tensor x of the batch of step 2 holds 6 samples, fewer than one batch of 7.");
  EXPECT_EQ(refusal(tensors(14), "mine:all"),
            "Batch 2 of mine:all holds 14 samples, but the plan is for batches of 7; cut it to that size.");
  Tensors other = tensors(kBatch);
  other["x"] = other["x"].to(at::kDouble);
  EXPECT_EQ(refusal(other), "Tensor x of the batch of step 2 is of type float64, but the model takes float32; convert it first.");
}

TEST_F(TorchData, RefusesLossesThatCannotBeCut) {
  const auto refused = [](Model model, const std::string& loss, bool masked) {
    DataOptions data;
    data.masked = masked;
    return test::usageErrorOf([&] { static_cast<void>(model.source(loss, data)); });
  };
  EXPECT_NE(
      refused(Model(GraphBuilder::shape({})), "cross_entropy", false).find("is a single number; take it as the loss with --loss output:y"),
      std::string::npos);
  EXPECT_NE(refused(Model(GraphBuilder::shape({3, 4})), "mse", false).find("Output y has no batch dimension"), std::string::npos);
  EXPECT_NE(refused(Model(GraphBuilder::meta({{4, ""}, GraphBuilder::batch()})), "cross_entropy", false)
                .find("no batch dimension before its classes"),
            std::string::npos);
  EXPECT_NE(refused(Model(GraphBuilder::shape({})), "output:y", true).find("cannot be split by samples"), std::string::npos);
}

}  // namespace
}  // namespace pw
