// The cost of tracing every run: steps of one rank with device timestamps against steps without.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <vector>

#include "backends/host/installation.h"
#include "backends/messages/in_memory_communicator.h"
#include "backends/pt2/read.h"
#include "engine/executor.h"
#include "schedules/generate.h"
#include "schedules/lower.h"
#include "simulator/plan/plan.h"
#include "tests/gpu/gpu.h"

namespace pw {
namespace {

namespace fs = std::filesystem;
using GpuTracing = test::Gpu;

/// The sample of 25 million parameters: where `./dev` exports it, or `check.py` of a pack. Empty where it is not.
std::string largeSample() {
  for (const fs::path& folder : {fs::path(PW_SOURCE_DIR) / ".deps" / "models", fs::path(resourceFolder()) / "models"}) {
    if (fs::exists(folder / "gpt_25m.pt2")) return folder / "gpt_25m.pt2";
  }
  return {};
}

Plan planOfOneRank(const ModelGraph& graph, int microbatches, std::int64_t size) {
  Plan plan;
  plan.modelName = graph.name;
  plan.modelFiles = graph.files;
  plan.microbatchSize = size;
  plan.batch = size * microbatches;
  plan.loss = {};
  plan.partition = cutGraph(graph, {}, bindBatch(graph, size), nullptr);
  plan.schedule = lower(generate("1f1b", {1, 1, microbatches}));
  plan.costs.stages.resize(1);
  return plan;
}

/// One rank's training of the sample on a device.
struct Training {
  const Device& device;
  std::vector<std::unique_ptr<Communicator>> alone = inMemoryCommunicators(1, std::chrono::minutes(1));
  std::unique_ptr<StageModule> stage;
  std::unique_ptr<Executor> executor;
  int steps = 0;

  Training(const ModelGraph& graph, const Plan& plan, const Device& on) : device(on) {
    StageOptions options;
    options.device = &device;
    options.initRandom = true;
    stage = torchBackend().makeTracedStage(graph, plan, Stage(0), options);
    executor = std::make_unique<Executor>(plan, std::map<Stage, StageModule*>{{Stage(0), stage.get()}}, *alone.front(), ExecutorOptions{});
  }

  /// Takes a step; how long it took by the host's clock, to the end of the device's work [ns].
  double step() {
    const Ns begin = monotonicNow();
    static_cast<void>(executor->step(steps++, {}));
    device.finish(std::chrono::minutes(1), {});
    return static_cast<double>(monotonicNow() - begin);
  }
};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

TEST_F(GpuTracing, TakesAHundredthOfAStepAtMost) {
  const std::string model = largeSample();
  if (model.empty()) GTEST_SKIP() << "gpt_25m.pt2 is not here; ./dev gpu-check and ./dev gpu-pack export it";
  const Device& gpu = test::firstGpu();
  Device quiet = gpu;
  quiet.timestamp = [] { return Timestamp{0}; };
  quiet.timeOf = [](Timestamp) { return Ns{0}; };
  quiet.forgetTimestamps = [] {};
  quiet.bytesAlive = [] { return Bytes{0}; };
  quiet.takePeakBytes = [] { return Bytes{0}; };
  const ModelGraph graph = readPt2(model);
  const Plan plan = planOfOneRank(graph, 8, 4);
  Training traced(graph, plan, gpu), untraced(graph, plan, quiet);
  constexpr int kWarmUp = 10, kRounds = 101;  // graphs are recorded in the first
  for (int i = 0; i < kWarmUp; ++i) {
    static_cast<void>(traced.step());
    static_cast<void>(untraced.step());
  }
  std::vector<double> with, without, ratios;
  for (int round = 0; round < kRounds; ++round) {
    const bool first = round % 2 == 0;  // in turn, and each as often the first
    const double a = first ? traced.step() : untraced.step(), b = first ? untraced.step() : traced.step();
    with.push_back(first ? a : b);
    without.push_back(first ? b : a);
    ratios.push_back(with.back() / without.back());
  }
  RecordProperty("step, traced [ms]", std::to_string(median(with) * 1e-6));
  RecordProperty("step, not traced [ms]", std::to_string(median(without) * 1e-6));
  RecordProperty("ratio, median of pairs []", std::to_string(median(ratios)));
  EXPECT_LE(median(ratios), 1.01);
}

}  // namespace
}  // namespace pw
