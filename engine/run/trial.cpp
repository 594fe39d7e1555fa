#include "engine/run/trial.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "backends/messages/buffer_math.h"
#include "backends/messages/in_memory_communicator.h"
#include "engine/executor.h"
#include "schedules/generate.h"
#include "schedules/lower.h"
#include "simulator/model/batch.h"
#include "simulator/model/graph_facts.h"
#include "simulator/model/loss_form.h"
#include "simulator/operators/operators.h"
#include "simulator/plan/plan.h"

namespace pw {
namespace {

using Numbers = std::vector<double>;

constexpr std::int64_t kSamples = 4, kMostUnits = 64;
constexpr double kFloor =
    1e-2;  ///< of the largest gradient of all: below it a tensor's own size says nothing, as of gradients that are zero but for rounding

/// Complex numbers as pairs, integers and booleans byte by byte.
Numbers numbersOf(DType dtype, Buffer buffer) {
  switch (dtype) {
    case DType::Float16:
    case DType::BFloat16:
    case DType::Float32:
    case DType::Float64: return toDoubles(dtype, buffer);
    case DType::ComplexHalf: return toDoubles(DType::Float16, buffer);
    case DType::ComplexFloat: return toDoubles(DType::Float32, buffer);
    case DType::ComplexDouble: return toDoubles(DType::Float64, buffer);
    case DType::Unknown:
    case DType::UInt8:
    case DType::Int8:
    case DType::Int16:
    case DType::Int32:
    case DType::Int64:
    case DType::Float8:
    case DType::Bool: break;
  }
  Numbers bytes;
  for (std::size_t i = 0; i < buffer.bytes; ++i) bytes.push_back(static_cast<double>(static_cast<unsigned char>(buffer.data[i])));
  return bytes;
}

/// What a step gave.
struct Outcome {
  double loss = 0;
  std::map<std::string, Numbers> gradients, buffers;
  std::map<std::pair<ValueId, int>, Numbers> outputs;  ///< by microbatch
};

/// The relative difference that sums in another order may make: about 2000 units in the last place of the narrowest type that computes.
double tolerance(const ModelGraph& graph) {
  double allowed = 1e-9;
  const auto widen = [&](double more) { allowed = std::max(allowed, more); };
  for (const Value& value : graph.values) {
    if (!value.tensor) continue;
    if (value.tensor->dtype == DType::Float32 || value.tensor->dtype == DType::ComplexFloat) widen(2e-4);
    if (value.tensor->dtype == DType::Float16 || value.tensor->dtype == DType::ComplexHalf) widen(2e-2);
    if (value.tensor->dtype == DType::BFloat16) widen(5e-2);
  }
  return allowed;
}

double largest(const Numbers& numbers) {
  double most = 0;
  for (const double x : numbers) most = std::max(most, std::abs(x));
  return most;
}

/// The difference of `actual` from `expected`, in units of `scale`.
double distance(const Numbers& actual, const Numbers& expected, double scale) {
  if (actual.size() != expected.size()) return std::numeric_limits<double>::infinity();
  double most = 0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    if (actual[i] == expected[i] || (std::isnan(actual[i]) && std::isnan(expected[i]))) continue;
    const double difference = std::abs(actual[i] - expected[i]);
    most = std::max(most, std::isfinite(difference) && scale > 0 ? difference / scale : std::numeric_limits<double>::infinity());
  }
  return most;
}

void note(TrialDifference& worst, const std::string& name, double relative, double allowed) {
  worst.equal = worst.equal && relative <= allowed;
  if (relative <= worst.relative) return;
  worst.relative = relative;
  worst.name = name;
}

/// The node with what it draws switched off, if it can be; `names` says which could.
void switchOff(Node& node, Trial& trial) {
  if (!isRandomOperator(node)) return;
  const std::string name = operatorName(node);
  const bool inTraining = operatorOf(node.target).draws == Draws::InTraining;
  for (NamedArgument& argument : node.inputs) {
    const bool isRate = (argument.name == "p" && inTraining) || argument.name == "dropout_p" || argument.name == "dropout";
    if (isRate && std::holds_alternative<double>(argument.value)) argument.value = 0.0;
    if (argument.name == "training" && inTraining) argument.value = false;
  }
  auto& names = isRandomOperator(node) ? trial.random : trial.switchedOff;
  if (std::ranges::find(names, name) == names.end()) names.push_back(name);
}

ModelGraph withoutRandomNumbers(ModelGraph graph, Trial& trial) {
  for (Node& node : graph.nodes) switchOff(node, trial);
  for (Subgraph& subgraph : graph.subgraphs) {
    for (Node& node : subgraph.nodes) switchOff(node, trial);
  }
  return graph;
}

/// The smallest batch of which 1, 2 and 4 times can run; nothing for a fixed batch.
std::optional<std::int64_t> unitOf(const ModelGraph& graph) {
  if (batchSymbol(graph).empty()) return std::nullopt;
  for (std::int64_t unit = 1; unit <= kMostUnits; ++unit) {
    const auto runs = [&](std::int64_t times) { return !obstacleToBatch(graph, unit * times); };
    if (runs(1) && runs(2) && runs(4)) return unit;  // else it is not a multiple of what the model takes
  }
  return std::nullopt;
}

class Trier {
 public:
  Trier(const ModelGraph& graph, const TrialOptions& options, const TorchBackend& torch, Trial& trial)
      : graph_(graph), options_(options), torch_(torch), trial_(trial), allowed_(tolerance(graph)) {
    for (const ValueId id : graph.outputs) {
      if (graph.value(id).tensor && std::ranges::find(watched_, id) == watched_.end()) watched_.push_back(id);
    }
  }

  void run() {
    std::optional<Outcome> whole;
    for (const int microbatches : {1, 2, 4}) {
      TrialStep step;
      step.microbatches = microbatches;
      try {
        Outcome outcome = train(microbatches);
        step.loss = outcome.loss;
        if (!whole)
          whole = std::move(outcome);
        else
          compare(step, outcome, *whole);
      } catch (const std::exception& e) {  // a failure of the model is a result, too
        step.failure = e.what();
      }
      trial_.steps.push_back(step);
      if (!whole) return;
    }
  }

 private:
  [[nodiscard]] Outcome train(int microbatches) const {
    Plan plan;
    plan.modelFiles = graph_.files;
    plan.modelName = graph_.name;
    plan.batch = trial_.batch;
    plan.microbatchSize = trial_.batch / microbatches;
    plan.loss = options_.loss;
    plan.partition = cutGraph(graph_, {}, bindBatch(graph_, plan.microbatchSize), nullptr);
    plan.schedule = lower(generate("gpipe", {1, 1, microbatches}));
    plan.costs.stages.resize(1);
    Outcome outcome;
    StageOptions stageOptions;
    stageOptions.seed = options_.seed;
    stageOptions.data.lossCount = options_.lossCount;
    stageOptions.data.ignoreSome = true;
    stageOptions.initRandom = std::ranges::any_of(graph_.parameters, [](const StateTensor& p) { return !p.stored; });
    stageOptions.watched = watched_;
    stageOptions.observe = [&](const std::string& name, Microbatch m, DType dtype, Buffer value) {
      const auto id = std::ranges::find_if(watched_, [&](ValueId v) { return graph_.value(v).name == name; });
      if (id != watched_.end()) outcome.outputs[{*id, m.value}] = numbersOf(dtype, value);
    };
    const auto stage = torch_.makeTracedStage(graph_, plan, Stage(0), stageOptions);
    const auto alone = inMemoryCommunicators(1, options_.deadline);
    Executor executor(plan, {{Stage(0), stage.get()}}, *alone.front(), {});
    const StepLog log = executor.step(0, [&] {
      for (const ParameterView& view : stage->parameters()) outcome.gradients[view.name] = numbersOf(view.dtype, view.gradient);
    });
    outcome.loss = log.loss.value_or(0);
    std::set<std::string> buffers;
    for (const StateTensor& buffer : graph_.buffers) buffers.insert(buffer.name);
    for (const StatePiece& piece : stage->state()) {
      if (buffers.contains(piece.name)) outcome.buffers[piece.name] = numbersOf(piece.dtype, piece.data);
    }
    return outcome;
  }

  void compare(TrialStep& step, const Outcome& actual, const Outcome& whole) const {
    note(step.lossDifference, toString(options_.loss), distance({actual.loss}, {whole.loss}, std::max(std::abs(whole.loss), 1e-6)),
         allowed_);
    double most = 0;
    for (const auto& [name, gradient] : whole.gradients) most = std::max(most, largest(gradient));
    for (const auto& [name, gradient] : whole.gradients) {
      note(step.gradients, name, distance(actual.gradients.at(name), gradient, std::max(largest(gradient), kFloor * most)), allowed_);
    }
    for (const auto& [name, buffer] : whole.buffers)
      note(step.buffers, name, distance(actual.buffers.at(name), buffer, largest(buffer)), allowed_);
    for (const ValueId id : watched_) compareOutput(step, id, actual, whole);
  }

  /// One with samples, part by part; without, only where all microbatches give the same: a mean over samples is the loss's matter.
  void compareOutput(TrialStep& step, ValueId id, const Outcome& actual, const Outcome& whole) const {
    const auto axis = batchAxis(graph_, id);
    const auto expected = whole.outputs.find({id, 0});
    if (!axis || expected == whole.outputs.end()) return;
    const auto shape = shapeOf(*graph_.value(id).tensor, bindBatch(graph_, trial_.batch));
    auto blocks = static_cast<std::size_t>(axis->outer);
    for (std::size_t d = 0; d < axis->dimension; ++d) blocks *= static_cast<std::size_t>(shape[d]);
    if (blocks == 0 || expected->second.size() % (blocks * static_cast<std::size_t>(trial_.batch)) != 0) return;
    const std::size_t samples = static_cast<std::size_t>(trial_.batch / step.microbatches), all = static_cast<std::size_t>(trial_.batch);
    const std::size_t width = expected->second.size() / blocks / all;
    Numbers joined(expected->second.size(), std::numeric_limits<double>::quiet_NaN());
    for (int m = 0; m < step.microbatches; ++m) {
      const auto part = actual.outputs.find({id, m});
      if (part == actual.outputs.end() || part->second.size() != blocks * samples * width) return;
      for (std::size_t b = 0; b < blocks; ++b) {
        const auto from = part->second.begin() + static_cast<std::ptrdiff_t>(b * samples * width);
        const std::size_t to = (b * all + static_cast<std::size_t>(m) * samples) * width;
        std::copy(from, from + static_cast<std::ptrdiff_t>(samples * width), joined.begin() + static_cast<std::ptrdiff_t>(to));
      }
    }
    note(step.outputs, graph_.value(id).name, distance(joined, expected->second, largest(expected->second)), allowed_);
  }

  const ModelGraph& graph_;
  const TrialOptions& options_;
  const TorchBackend& torch_;
  Trial& trial_;
  double allowed_;
  std::vector<ValueId> watched_;
};

}  // namespace

bool Trial::sameResults() const {
  return refused.empty() && std::ranges::all_of(steps, [](const TrialStep& s) { return s.sameResults(); });
}

bool Trial::sameBuffers() const {
  return refused.empty() && std::ranges::all_of(steps, [](const TrialStep& s) { return s.failure.empty() && s.buffers.equal; });
}

Trial tryMicrobatches(const ModelGraph& model, const TrialOptions& options, const TorchBackend& torch) {
  Trial trial;
  trial.loss = options.loss;
  trial.lossCount = options.lossCount;
  const auto unit = unitOf(model);
  if (!unit) {
    trial.refused = "The batch was fixed at export, so that it cannot be cut; export the model with a dynamic batch to try it";
    return trial;
  }
  trial.batch = kSamples * *unit;
  const ModelGraph graph = withoutRandomNumbers(model, trial);
  const auto losses = ownLosses(graph);
  trial.ignoredTargets = std::ranges::any_of(losses, [&](const OwnLoss& l) {  // where a sample has several
    if (l.form != LossForm::TargetMean || !l.counted || !graph.value(*l.counted).tensor) return false;
    std::int64_t targets = 1;
    for (const SymbolicInt& size : graph.value(*l.counted).tensor->sizes) targets *= size.hint;
    return targets > exportedBatch(graph);
  });
  Trier(graph, options, torch, trial).run();
  return trial;
}

}  // namespace pw
