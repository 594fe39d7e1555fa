// engine_bench split MODEL LOSS: backward in one (B) and in two (I, W) of one stage on one rank, in turn.
// engine_bench overhead: what an action costs beside its work: two ranks over UCX whose stages do nothing, one message of 1 KB for each
// action. Prints a JSON document.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <vector>

#include "backends/pt2/read.h"
#include "backends/torch/backend.h"
#include "engine/executor.h"
#include "engine/processes/connect.h"
#include "engine/processes/launcher.h"
#include "engine/worker.h"
#include "schedules/error.h"
#include "schedules/generate.h"
#include "schedules/lower.h"

namespace {

using namespace pw;

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

nlohmann::json timeSplit(const std::string& path, const std::string& loss) {
  const ModelGraph graph = readPt2(path);
  const TorchBackend& torch = torchBackend();
  torch.prepareProcess(1);
  constexpr int kMicrobatches = 4, kRounds = 31;
  Plan plan;
  plan.modelName = graph.name;
  plan.modelFiles = graph.files;
  plan.microbatchSize = exportedBatch(graph);
  plan.batch = plan.microbatchSize * kMicrobatches;
  plan.loss = parseLoss(loss);
  plan.partition = cutGraph(graph, {}, bindBatch(graph, plan.microbatchSize), nullptr);
  plan.schedule = lower(generate("gpipe", {1, 1, kMicrobatches}));
  const auto stage = torch.makeTracedStage(graph, plan, Stage(0), {});
  std::vector<double> whole, input, weight, ratio;
  for (int round = 0; round < kRounds; ++round) {
    double b = 0, i = 0, w = 0;
    for (const bool splits : {round % 2 == 0, round % 2 != 0}) {
      stage->beginStep(0, StepMode::Train);
      for (int m = 0; m < kMicrobatches; ++m) {
        stage->forward(Microbatch(m));
        const Ns start = monotonicNow();
        splits ? stage->backwardInput(Microbatch(m)) : stage->backward(Microbatch(m));
        const Ns middle = monotonicNow();
        if (splits) stage->backwardWeight(Microbatch(m));
        (splits ? i : b) += static_cast<double>(middle - start);
        if (splits) w += static_cast<double>(monotonicNow() - middle);
      }
    }
    if (round == 0) continue;  // warms up
    whole.push_back(b / kMicrobatches);
    input.push_back(i / kMicrobatches);
    weight.push_back(w / kMicrobatches);
    ratio.push_back((i + w) / b);
  }
  return {{"B_ns", median(whole)}, {"I_ns", median(input)}, {"W_ns", median(weight)}, {"ratio", median(ratio)}};
}

/// A stage that computes nothing; its values are 1 KB each.
class EmptyStage final : public StageModule {
 public:
  void beginStep(int, StepMode) override {}
  HeldBuffer allocate(std::size_t, Microbatch) override { return buffer(); }
  void setInput(std::size_t, Microbatch, HeldBuffer) override {}
  HeldBuffer takeOutput(std::size_t, Microbatch) override { return buffer(); }
  void setOutputGradient(std::size_t, Microbatch, HeldBuffer) override {}
  HeldBuffer takeInputGradient(std::size_t, Microbatch) override { return buffer(); }
  void forward(Microbatch) override {}
  void backward(Microbatch) override {}
  void backwardInput(Microbatch) override {}
  void backwardWeight(Microbatch) override {}
  void setLossScale(double /*scale*/) override {}
  std::optional<double> stepLoss() const override { return std::nullopt; }
  HeldBuffer takeModelOutput(std::size_t, Microbatch) override { return {}; }
  std::vector<ParameterGroup> groups() override { return {}; }
  void optimizerStep(std::size_t, std::int64_t, std::int64_t, double) override {}
  std::vector<ParameterView> parameters() override { return {}; }
  std::vector<StatePiece> state() override { return {}; }
  Bytes bytesAlive() const override { return 0; }
  Bytes peakBytes() override { return 0; }

 private:
  static HeldBuffer buffer() {
    auto bytes = std::make_shared<std::vector<std::byte>>(1024);
    return {{bytes->data(), bytes->size()}, bytes};
  }
};

nlohmann::json timeOverhead(Communicator& me, const std::string& schedule) {
  constexpr int kMicrobatches = 64, kRounds = 41;
  Plan plan;
  plan.schedule = lower(generate(schedule, {2, 2, kMicrobatches}));
  plan.partition.stages.resize(2);
  plan.partition.transfers = {{ValueId(0), Stage(0), Stage(1), true, 1024}};
  EmptyStage stage;
  Executor executor(plan, {{Stage(me.rank().index()), &stage}}, me, {});
  std::vector<double> perAction;
  for (int round = 0; round < kRounds; ++round) {
    const StepLog log = executor.step(round, {});
    Ns begin = log.spans.front().start, end = begin, compute = 0;
    for (const Span& span : log.spans) {
      if (!isCompute(span.kind)) continue;
      begin = std::min(begin, span.start);
      end = std::max(end, span.end);
      ++compute;
    }
    if (round > 0) perAction.push_back(static_cast<double>(end - begin) / static_cast<double>(compute));
  }
  return {{"schedule", schedule}, {"actions", 2 * kMicrobatches}, {"ns_per_action", median(perAction)}};
}

int runRank(const RankEnvironment& environment) {
  bindToCores(environment);
  const TorchBackend& torch = torchBackend();
  torch.prepareProcess(1);
  const auto me = connectRanks(Transport::Ucx, rendezvousOf(environment, std::chrono::seconds(30)), torch);
  nlohmann::json results = nlohmann::json::array();
  for (const char* schedule : {"1f1b", "gpipe"}) results.push_back(timeOverhead(*me, schedule));
  if (me->rank() == JobRank(0)) std::cout << results.dump() << "\n";
  me->barrier();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::string what = argc > 1 ? argv[1] : "";
    if (what == "split" && argc == 4) {
      std::cout << timeSplit(argv[2], argv[3]).dump() << "\n";
      return 0;
    }
    if (const auto environment = rankEnvironment()) return runRank(*environment);
    const std::string self = std::filesystem::read_symlink("/proc/self/exe");
    const LaunchResult result = launch(2, {self, "overhead"}, 1, {}, std::chrono::minutes(2));
    if (!result.ok) throw Error(result.failure);
    return 0;
  } catch (const std::exception& e) {
    std::cerr << e.what() << "\n";
    return 1;
  }
}
