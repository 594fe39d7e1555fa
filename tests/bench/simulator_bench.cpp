// Speed of generating, checking, lowering, compiling and simulating schedules on one thread; simulator.py shows the results as a table.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "schedules/check.h"
#include "schedules/csv.h"
#include "schedules/generate.h"
#include "schedules/lower.h"
#include "simulator/costs/layer_chain.h"
#include "simulator/plan/planner.h"
#include "simulator/report/lower_bound.h"
#include "simulator/report/metrics.h"
#include "simulator/search/fitted_splits.h"
#include "simulator/step/compile.h"
#include "simulator/step/cost_table.h"
#include "simulator/step/execute.h"
#include "simulator/step/program.h"

namespace {
/// Calls of operator new in this program; it has one thread.
std::size_t allocations = 0;  // NOLINT: operator new has no other place to count
}  // namespace

// Not inlined: the compiler would see malloc meet delete, and warn.
[[gnu::noinline]] void* operator new(std::size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace pw {
namespace {

constexpr int kRanks = 8;
/// Times of one pass over a chunk; nothing depends on their size.
constexpr Ns kForward = 1'000, kBackward = 2'000;

enum class Messages { Free, Costly };

/// Synthetic costs; costly messages have a latency and hold their channel, and all that is kept has a size.
CostTable costsOf(int stages, Messages messages) {
  SyntheticCosts synthetic;
  synthetic.forward = {kForward};
  synthetic.backward = {kBackward};
  if (messages == Messages::Costly) {
    synthetic.latency = 10;
    synthetic.transfer = 50;
  }
  CostTable costs = syntheticTable(synthetic, stages);
  if (messages == Messages::Free) return costs;
  for (StageCost& stage : costs.stages) {
    stage.parameterBytes = stage.gradientBytes = stage.optimizerBytes = 1'000'000;
    stage.activationBytes = 10'000;
    stage.freedByInput = 5'000;
  }
  for (MessageCost& message : costs.messages) message.bytes = 1'000;
  return costs;
}

std::size_t computeActions(const Schedule& schedule) {
  std::size_t count = 0;
  for (const auto& row : schedule.rows)
    count += static_cast<std::size_t>(std::ranges::count_if(row, [](const Action& a) { return isCompute(a.kind); }));
  return count;
}

/// What the table divides by: `actions` are compute actions, with messages or without.
void setActions(benchmark::State& state, std::size_t actions) { state.counters["actions"] = static_cast<double>(actions); }

/// One compiled schedule at a time: the largest takes gigabytes, and every repetition allocates its own again.
class Compiled {
 public:
  struct Case {
    std::string name;
    Shape shape;
    Messages messages = Messages::Free;

    bool operator==(const Case&) const = default;
  };

  const Program& of(const Case& wanted) {
    if (!(wanted == case_)) {
      program_ = {};
      const Schedule schedule = generate(wanted.name, wanted.shape);
      actions_ = computeActions(schedule);
      program_ = compile(schedule, costsOf(wanted.shape.stages, wanted.messages));
      case_ = wanted;
    }
    return program_;
  }
  [[nodiscard]] std::size_t actions() const { return actions_; }

 private:
  Case case_;
  Program program_;
  std::size_t actions_ = 0;
};

/// Passes over a compiled program. `allocated` is set when one of them, after the first, allocates.
void benchExecute(benchmark::State& state, Compiled& compiled, const Compiled::Case& wanted, bool& allocated) {
  const Program& program = compiled.of(wanted);
  Times times;
  execute(program, times);
  std::size_t during = 0;
  for (auto _ : state) {
    const std::size_t before = allocations;
    execute(program, times);
    during += allocations - before;
    benchmark::DoNotOptimize(times.start.data());
  }
  setActions(state, compiled.actions());
  if (during == 0) return;
  allocated = true;
  state.SkipWithError("execute allocates");
}

void addExecute(const std::shared_ptr<Compiled>& compiled, bool& allocated) {
  using enum Messages;
  struct Size {
    int ranks, microbatches;
    Messages messages;
  };
  for (const auto [ranks, microbatches, messages] : {Size{8, 4'096, Costly},
                                                     {64, 512, Costly},
                                                     {8, 4'096, Free},
                                                     {64, 512, Free},
                                                     {8, 40'960, Costly},
                                                     {8, 40'960, Free},
                                                     {8, 163'840, Costly},
                                                     {8, 163'840, Free},
                                                     {8, 625'000, Costly},
                                                     {8, 625'000, Free}}) {
    const Compiled::Case wanted{"1f1b", {ranks, ranks, microbatches}, messages};
    const std::string name = "execute/1f1b R=" + std::to_string(ranks) + " M=" + std::to_string(microbatches) +
                             (messages == Costly ? "/messages and memory" : "/times only");
    benchmark::RegisterBenchmark(name.c_str(),
                                 [=, &allocated](benchmark::State& state) { benchExecute(state, *compiled, wanted, allocated); });
  }
}

/// Registers `work` under FUNCTION/SCHEDULE.
void add(const std::string& function, const std::string& schedule, std::size_t actions, const std::function<void()>& work) {
  benchmark::RegisterBenchmark((function + "/" + schedule).c_str(), [=](benchmark::State& state) {
    for (auto _ : state) work();
    setActions(state, actions);
  });
}

/// Keeps a result that nobody reads.
template <class Value>
void keep(const Value& value) {
  benchmark::DoNotOptimize(&value);
}

/// Every function on one schedule of about 100,000 compute actions.
void addFunctions(const std::string& name, int chunks, int microbatches) {
  const Shape shape{kRanks, kRanks * chunks, microbatches};
  const auto whole = std::make_shared<Schedule>(generate(name, shape));
  const auto lowered = std::make_shared<Schedule>(lower(*whole));
  const auto costs = std::make_shared<CostTable>(costsOf(shape.stages, Messages::Costly));
  const auto trace = std::make_shared<Trace>(simulate(*whole, *costs));
  const std::string wholeCsv = toCsv(*whole), loweredCsv = toCsv(*lowered);
  const std::size_t n = computeActions(*whole);
  add("generate", name, n, [=] { keep(generate(name, shape)); });
  add("check", name, n, [=] { keep(check(*whole)); });
  add("check lowered", name, n, [=] { keep(check(*lowered)); });
  add("lower deferred", name, n, [=] { keep(lower(*whole, Lowering::Deferred)); });
  add("lower torch", name, n, [=] { keep(lower(*whole, Lowering::Torch)); });
  add("lower torch-runtime", name, n, [=] { keep(lower(*whole, Lowering::TorchRuntime)); });
  add("write CSV", name, n, [=] { keep(toCsv(*whole)); });
  add("write CSV lowered", name, n, [=] { keep(toCsv(*lowered)); });
  add("read CSV", name, n, [=] { keep(parseCsv(wholeCsv, name, "bench")); });
  add("read CSV lowered", name, n, [=] { keep(parseCsv(loweredCsv, name, "bench")); });
  add("compile", name, n, [=] { keep(compile(*whole, *costs)); });
  add("compile posted", name, n, [=] { keep(compile(*lowered, *costs, Sending::Posted)); });
  add("simulate", name, n, [=] { keep(simulate(*whole, *costs)); });
  add("measure", name, n, [=] { keep(metricsOf(*trace)); });
  add("lower bound", name, n, [=] { keep(lowerBound(*whole, *costs)); });
}

/// A lowered CSV file as torch's simulation sees it: every SEND and RECV posts its end of a message.
void addFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const std::string name = path.stem().string();
  const auto lowered = std::make_shared<Schedule>(parseCsv(text, name, path.string()));
  const auto costs = std::make_shared<CostTable>(costsOf(shapeOf(*lowered).stages, Messages::Costly));
  const auto program = std::make_shared<Program>(compile(*lowered, *costs, Sending::Posted));
  const auto times = std::make_shared<Times>();
  const std::size_t n = computeActions(*lowered);
  add("compile and execute file", name, n, [=] {
    execute(compile(*lowered, *costs, Sending::Posted), *times);
    benchmark::DoNotOptimize(times->start.data());
  });
  add("execute file", name, n, [=] {
    execute(*program, *times);
    benchmark::DoNotOptimize(times->start.data());
  });
}

/// Where 64 stages of 100,000 uneven layers begin: balanced, then for memory limits that the balanced ones exceed.
void addSplits() {
  constexpr int kStages = 64, kMicrobatches = 64;
  LayerTable table;
  std::mt19937 numbers(5);
  const auto between = [&](int low, int high) { return std::uniform_int_distribution<std::int64_t>(low, high)(numbers); };
  for (std::size_t i = 0; i < kMostLayers; ++i) {
    Layer layer;
    layer.name = std::to_string(i);
    layer.forward = layer.input = Ns(between(900, 1'100));
    layer.weight = layer.forward * 9 / 10;
    layer.parameters = 80'000;
    layer.activations = Bytes(between(15'000, 25'000));
    layer.output = 3'200;
    table.layers.push_back(layer);
  }
  const auto graph = std::make_shared<const ModelGraph>(chainOf(table, "bench"));
  const auto profile = std::make_shared<const Profile>(profileOf(*graph));
  PlanRequest request;
  request.ranks = kStages;
  request.microbatches = kMicrobatches;
  const auto rows = std::make_shared<const Schedule>(planRows(generate(request.schedule, {kStages, kStages, kMicrobatches}), 1));
  const std::vector<NodeId> balanced = balancedFor(request, *graph, *profile, kStages, Balance::Time);
  PlanRequest even = request;
  even.begins = balanced;
  Bytes most = 0, sum = 0;
  for (const RankMetrics& rank : metricsOf(simulate(*rows, price(even, *graph, *profile, *rows).costs)).ranks) {
    most = std::max(most, rank.peakBytes);
    sum += rank.peakBytes;
  }
  request.memoryLimit = (most + 3 * sum / kStages) / 4;
  add("split", "balanced", kMostLayers, [=] { keep(balancedFor(request, *graph, *profile, kStages, Balance::Time)); });
  add("split", "within limits", kMostLayers, [=] { keep(splitsWithinLimits(request, *graph, profile, *rows, balanced, {})); });
}

}  // namespace
}  // namespace pw

/// simulator_bench [Google Benchmark's flags] [F.csv ...]: with files, measures those instead.
int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  const auto compiled = std::make_shared<pw::Compiled>();
  bool allocated = false;
  if (argc > 1) {
    for (int i = 1; i < argc; ++i) pw::addFile(argv[i]);
  } else {
    pw::addExecute(compiled, allocated);
    pw::addFunctions("1f1b", 1, 6'250);
    pw::addFunctions("zbv", 2, 2'084);
    pw::addSplits();
  }
  benchmark::RunSpecifiedBenchmarks();
  return allocated ? 1 : 0;
}
