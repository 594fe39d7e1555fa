// Optimizers give torch.optim's numbers (tests/support/python/state_reference.py): those of its fused kernels bit for bit and of its plain
// loops up to rounding; for 16-bit numbers, where the fused kernels are wrong, those of the plain loops bit for bit.
#include "backends/torch/stage/optimizer.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "backends/torch/stage/checkpoint.h"
#include "tests/support/graph_builder.h"

namespace pw {
namespace {

namespace fs = std::filesystem;

constexpr int kSteps = 20;

struct Case {
  std::string name;
  OptimizerSpec spec;
};

OptimizerSpec sgd(double momentum, bool nesterov, double weightDecay) {
  OptimizerSpec spec;
  spec.learningRate = 0.1;
  spec.momentum = momentum;
  spec.nesterov = nesterov;
  spec.weightDecay = weightDecay;
  return spec;
}

OptimizerSpec adam(OptimizerSpec::Kind kind, double weightDecay) {
  OptimizerSpec spec;
  spec.kind = kind;
  spec.learningRate = 0.01;
  spec.weightDecay = weightDecay;
  return spec;
}

OptimizerSpec rmsProp(double alpha, double momentum, double weightDecay) {
  OptimizerSpec spec;
  spec.kind = OptimizerSpec::Kind::RmsProp;
  spec.alpha = alpha;
  spec.momentum = momentum;
  spec.weightDecay = weightDecay;
  return spec;
}

std::vector<Case> cases() {
  Case odd{"adam_decay", adam(OptimizerSpec::Kind::Adam, 0.02)};
  odd.spec.beta1 = 0.8;
  odd.spec.beta2 = 0.95;
  odd.spec.epsilon = 1e-6;
  return {{"sgd", sgd(0, false, 0)},
          {"sgd_decay", sgd(0, false, 0.02)},
          {"momentum", sgd(0.9, false, 0)},
          {"nesterov", sgd(0.9, true, 0.02)},
          {"adam", adam(OptimizerSpec::Kind::Adam, 0)},
          odd,
          {"adamw", adam(OptimizerSpec::Kind::AdamW, 0.1)},
          {"rmsprop", rmsProp(0.99, 0, 0)},
          {"rmsprop_momentum", rmsProp(0.9, 0.8, 0.02)}};
}

class TorchOptimizer : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    fs::create_directories(folder());
    const std::string command = "OMP_NUM_THREADS=1 " + std::string(PW_PYTHON) + " -W ignore " + PW_SOURCE_DIR +
                                "/tests/support/python/state_reference.py optimizers " + folder().string();
    ASSERT_TRUE(fs::exists(PW_PYTHON)) << "run ./dev setup";
    ASSERT_EQ(std::system(command.c_str()), 0);
  }
  static void TearDownTestSuite() { fs::remove_all(folder()); }
  static fs::path folder() { return fs::path(testing::TempDir()) / ("pw_optimizers_" + std::to_string(getpid())); }
};

TEST_F(TorchOptimizer, EqualsTorchOptimOverTwentySteps) {
  for (const Case& c : cases()) {
    for (const char* dtype : {"float32", "float64", "bfloat16", "float16"}) {
      SCOPED_TRACE(c.name + " " + dtype);
      const CheckpointFile file((folder() / (c.name + "_" + dtype + ".pt")).string());
      const at::Tensor gradients = file.read("gradients");
      at::Tensor values = file.read("first").clone(), gradient = at::empty_like(values);
      Optimizer optimizer(c.spec);
      for (int step = 0; step < kSteps; ++step) {
        gradient.copy_(gradients[step]);
        optimizer.step(0, values, gradient, step, 1);
      }
      const std::string exact = values.element_size() == 2 ? "plain" : "fused";
      EXPECT_TRUE(at::equal(values, file.read(exact))) << "up to " << (values - file.read(exact)).abs().max().item<double>();
      for (const auto& [name, tensor] : optimizer.state(0, values)) EXPECT_TRUE(at::equal(tensor, file.read(exact + "_" + name))) << name;
      const double tolerance = values.element_size() == 4 ? 1.3e-6 : 1e-12;
      EXPECT_TRUE(at::allclose(values, file.read("plain"), tolerance, tolerance, true));
    }
  }
}

TEST_F(TorchOptimizer, ContinuesFromStateThatWasSaved) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    const CheckpointFile file((folder() / (c.name + "_float32.pt")).string());
    at::Tensor values = file.read("first").clone();
    Optimizer first(c.spec), second(c.spec, 7);
    const auto run = [&](Optimizer& optimizer, int begin, int end) {
      for (int step = begin; step < end; ++step) {
        at::Tensor gradient = file.read("gradients")[step].clone();
        optimizer.step(3, values, gradient, step, 1);
      }
    };
    run(first, 0, 7);
    const auto saved = first.state(3, values), fresh = second.state(3, values);
    ASSERT_EQ(saved.size(), static_cast<std::size_t>(stateCopies(c.spec)));
    for (std::size_t i = 0; i < saved.size(); ++i) fresh[i].second.copy_(saved[i].second);
    run(second, 7, kSteps);
    EXPECT_TRUE(at::equal(values, file.read("fused")));
  }
}

TEST_F(TorchOptimizer, TakesOtherNumbersFromStepToStep) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    const CheckpointFile file((folder() / (c.name + "_float32.pt")).string());
    OptimizerSpec scheduled = c.spec, constant = c.spec;
    scheduled.warmupSteps = 3;
    scheduled.decaySteps = 9;
    constant.warmupSteps = constant.decaySteps = 0;
    Optimizer one(scheduled), other(constant);
    at::Tensor expected = file.read("first").clone(), values = expected.clone();
    for (int step = 0; step < kSteps; ++step) {
      at::Tensor gradient = file.read("gradients")[step].clone(), same = gradient.clone();
      one.step(0, expected, gradient, step, 1);
      constant.learningRate = learningRateAt(scheduled, step);
      other.change(constant);
      other.step(0, values, same, step, 1);
      ASSERT_TRUE(at::equal(values, expected)) << step;
    }
    OptimizerSpec another = c.spec;
    another.kind = c.spec.kind == OptimizerSpec::Kind::Sgd ? OptimizerSpec::Kind::Adam : OptimizerSpec::Kind::Sgd;
    EXPECT_THROW(other.change(another), UsageError);
  }
}

TEST_F(TorchOptimizer, ScalesGradients) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    const CheckpointFile file((folder() / (c.name + "_float32.pt")).string());
    const at::Tensor gradients = file.read("gradients");
    // 1/4 is exact. A third of x is x / 3 rounded once, which is how a mean over 3 ranks is rounded. 0.7 is multiplied.
    for (const double scale : {0.25, 1.0 / 3, 0.7}) {
      at::Tensor values = file.read("first").clone(), expected = values.clone();
      Optimizer scaled(c.spec), plain(c.spec);
      for (int step = 0; step < kSteps; ++step) {
        at::Tensor gradient = gradients[step].clone();
        at::Tensor prepared = scale == 0.25 ? gradient * 0.25 : scale == 0.7 ? gradient * 0.7 : gradient / 3;
        scaled.step(0, values, gradient, step, scale);
        plain.step(0, expected, prepared, step, 1);
        EXPECT_TRUE(at::equal(gradient, prepared));
      }
      EXPECT_TRUE(at::equal(values, expected)) << "times " << scale;
    }
  }
}

TEST_F(TorchOptimizer, DoesNotDependOnHowItIsSharded) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    const CheckpointFile file((folder() / (c.name + "_float32.pt")).string());
    at::Tensor values = file.read("first").clone();
    Optimizer optimizer(c.spec);
    for (int step = 0; step < kSteps; ++step) {
      at::Tensor gradient = file.read("gradients")[step].clone();
      for (const auto& [key, begin, end] : {std::tuple{0, 0, 512}, {1, 512, 1003}}) {
        at::Tensor value = values.narrow(0, begin, end - begin), part = gradient.narrow(0, begin, end - begin);
        optimizer.step(static_cast<std::size_t>(key), value, part, step, 1);
      }
    }
    EXPECT_TRUE(at::equal(values, file.read("fused"))) << "bit for bit where shards end at multiples of 64 bytes";
  }
}

// Groups of parameters, whose pieces begin at multiples of 64 bytes: bit for bit as if each piece had an optimizer of its own.
TEST_F(TorchOptimizer, UpdatesEachPieceWithTheNumbersOfItsGroup) {
  const std::vector<OptimizerPiece> pieces{{512, 1}, {512, 0}, {768, 0}, {1003, 1}};
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    const CheckpointFile file((folder() / (c.name + "_float32.pt")).string());
    OptimizerSpec grouped = c.spec, other = c.spec;
    other.learningRate = 3 * c.spec.learningRate;
    other.weightDecay = c.spec.weightDecay + 0.05;
    grouped.learningRate = grouped.weightDecay = 0.77;  // counts for none
    grouped.groups = {{c.spec.learningRate, c.spec.weightDecay, {}}, {other.learningRate, other.weightDecay, {}}};
    grouped.warmupSteps = 4;
    other.warmupSteps = 4;
    OptimizerSpec first = c.spec;
    first.warmupSteps = 4;
    Optimizer whole(grouped), alone0(first), alone1(other);
    at::Tensor values = file.read("first").clone(), expected = values.clone();
    for (int step = 0; step < kSteps; ++step) {
      at::Tensor gradient = file.read("gradients")[step].clone(), same = gradient.clone();
      whole.step(0, values, gradient, step, 0.5, pieces);
      const auto alone = [&](Optimizer& optimizer, std::size_t key, std::int64_t begin, std::int64_t end) {
        at::Tensor value = expected.narrow(0, begin, end - begin), part = same.narrow(0, begin, end - begin);
        optimizer.step(key, value, part, step, 0.5);
      };
      alone(alone1, 0, 0, 512), alone(alone0, 0, 512, 768), alone(alone1, 1, 768, 1003);
    }
    EXPECT_TRUE(at::equal(values, expected));
    EXPECT_FALSE(at::equal(values, file.read("fused"))) << "the groups differ";
  }
}

TEST_F(TorchOptimizer, RefusesWhatItCannotUpdate) {
  at::Tensor whole = at::zeros({4}, at::kLong), imaginary = at::zeros({4}, at::kComplexFloat), none = at::zeros({0});
  Optimizer optimizer(adam(OptimizerSpec::Kind::Adam, 0));
  EXPECT_EQ(test::usageErrorOf([&] { optimizer.step(0, whole, whole, 0, 1); }),
            "The optimizers update floating point parameters, not int64; freeze such parameters before the export.");
  EXPECT_NE(test::usageErrorOf([&] { optimizer.step(0, imaginary, imaginary, 0, 1); }).find("complex64"), std::string::npos);
  EXPECT_NE(test::usageErrorOf([] { Optimizer made(sgd(0, true, 0)); }).find("needs a momentum"), std::string::npos);
  optimizer.step(1, none, none, 0, 1);
}

}  // namespace
}  // namespace pw
