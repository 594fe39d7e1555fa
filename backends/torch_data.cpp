#include "backends/torch_data.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <torch/csrc/jit/serialization/pickle.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "backends/torch_types.h"
#include "schedules/error.h"

namespace pw {
namespace {

bool isIndex(const Value& value) {
  return value.tensor && !isDifferentiable(value.tensor->dtype) && value.tensor->dtype != DType::Bool;
}

/// Number of valid indices if `node` selects with `value`: rows of an embedding, classes of a loss; else 0.
std::int64_t selectionRange(const ModelGraph& graph, const Node& node, ValueId value) {
  const auto sizesOf = [&](const std::string& argument) -> std::vector<SymbolicInt> {
    for (const NamedArgument& a : node.inputs) {
      const auto* id = std::get_if<ValueId>(&a.value);
      if (a.name == argument && id != nullptr && graph.value(*id).tensor) return graph.value(*id).tensor->sizes;
    }
    return {};
  };
  const auto passedAs = [&](const std::string& argument) {
    return std::any_of(node.inputs.begin(), node.inputs.end(), [&](const NamedArgument& a) {
      const auto* id = std::get_if<ValueId>(&a.value);
      return a.name == argument && id != nullptr && *id == value;
    });
  };
  if (node.target.rfind("torch.ops.aten.embedding", 0) == 0 && passedAs("indices")) {
    const auto sizes = sizesOf("weight");
    return sizes.empty() ? 0 : sizes.front().hint;
  }
  if ((node.target.rfind("torch.ops.aten.cross_entropy_loss", 0) == 0 || node.target.rfind("torch.ops.aten.nll_loss", 0) == 0) &&
      passedAs("target")) {
    const auto sizes = sizesOf("self");
    return sizes.empty() ? 0 : sizes[sizes.size() > 1 ? 1 : 0].hint;
  }
  return 0;
}

/// How many values an integer input may take, followed through the nodes that pass indices on; 0 when it selects nothing.
std::int64_t indexRange(const ModelGraph& graph, ValueId input) {
  std::set<ValueId> carriers{input};
  for (const Node& node : graph.nodes) {
    for (const ValueId read : readsOf(node)) {
      if (!carriers.contains(read)) continue;
      if (const std::int64_t range = selectionRange(graph, node, read); range > 0) return range;
      for (const ValueId output : node.outputs) {
        if (isIndex(graph.value(output))) carriers.insert(output);
      }
      break;
    }
  }
  return 0;
}

std::vector<std::int64_t> hints(const TensorMeta& meta) {
  std::vector<std::int64_t> sizes;
  for (const SymbolicInt& size : meta.sizes) sizes.push_back(size.hint);
  return sizes;
}

at::Tensor synthetic(DType dtype, const std::vector<std::int64_t>& shape, std::int64_t range, std::uint64_t seed) {
  const at::Generator generator = at::detail::createCPUGenerator(seed);
  const auto options = at::TensorOptions().dtype(scalarType(dtype));
  if (isDifferentiable(dtype)) return at::randn(shape, generator, at::TensorOptions().dtype(at::kFloat)).to(scalarType(dtype));
  return range > 0 ? at::randint(range, shape, generator, options) : at::ones(shape, options);
}

std::map<std::string, at::Tensor> readTensors(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) throw UsageError("Cannot open the data file " + path + "; check the path.");
  const std::vector<char> bytes((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
  std::map<std::string, at::Tensor> tensors;
  try {
    const c10::IValue value = torch::jit::pickle_load(bytes);
    for (const auto& entry : value.toGenericDict()) tensors.emplace(entry.key().toStringRef(), entry.value().toTensor().contiguous());
  } catch (const std::exception&) {
    throw UsageError(path + " is not a dict of tensors; write it with torch.save({'input': tensor, 'target': tensor}, path).");
  }
  return tensors;
}

/// Position of the output of this name, else of this name in the trace, else of this index.
std::optional<std::size_t> findOutput(const ModelGraph& graph, const std::string& wanted) {
  std::vector<std::string> traceNames, indices;
  for (std::size_t i = 0; i < graph.outputs.size(); ++i) {
    traceNames.push_back(graph.value(graph.outputs[i]).name);
    indices.push_back(std::to_string(i));
  }
  for (const std::vector<std::string>* names : {&graph.outputNames, &std::as_const(traceNames), &std::as_const(indices)}) {
    const auto found = std::find(names->begin(), names->end(), wanted);
    if (found != names->end()) return static_cast<std::size_t>(found - names->begin());
  }
  return std::nullopt;
}

}  // namespace

LossSpec parseLoss(const ModelGraph& graph, const std::string& loss) {
  if (graph.outputs.empty()) throw UsageError("Model " + graph.name + " has no outputs, so it has no loss.");
  LossSpec spec;
  spec.output = graph.outputs.front();
  if (loss == "cross_entropy") return spec;
  if (loss == "mse" || loss == "sum") {
    spec.kind = loss == "mse" ? LossSpec::Kind::MeanSquaredError : LossSpec::Kind::Sum;
    return spec;
  }
  spec.kind = LossSpec::Kind::Output;
  std::string known;
  if (loss.rfind("output:", 0) == 0) {
    const std::string wanted = loss.substr(7);
    if (const auto position = findOutput(graph, wanted)) {
      spec.output = graph.outputs[*position];
      return spec;
    }
    for (const std::string& name : graph.outputNames) known += (known.empty() ? "" : ", ") + name;
    throw UsageError("Model " + graph.name + " has no output " + wanted + "; its outputs are " + known + ".");
  }
  throw UsageError("Unknown loss " + loss + "; use cross_entropy, mse, sum or output:NAME.");
}

struct BatchSource::Impl {
  LossSpec loss;
  std::vector<std::int64_t> sizes, begins;
  std::int64_t batch = 0;
  std::map<ValueId, at::Tensor> all;       // whole file, or one synthetic batch
  std::map<ValueId, at::Tensor> current;   // this step's batch
  at::Tensor allTargets, targets;
  double normaliser = 1;

  void makeSynthetic(const ModelGraph& graph, std::uint64_t seed);
  void readFile(const ModelGraph& graph, const std::string& file);
};

void BatchSource::Impl::makeSynthetic(const ModelGraph& graph, std::uint64_t seed) {
  std::uint64_t stream = seed * 1000003U;
  for (const ValueId id : graph.inputs) {
    const Value& value = graph.value(id);
    if (!value.tensor || value.tensor->sizes.empty()) throw UsageError("Input " + value.name + " has no batch dimension, so it cannot be cut into microbatches.");
    std::vector<std::int64_t> shape = hints(*value.tensor);
    shape[0] = batch;
    all[id] = synthetic(value.tensor->dtype, shape, isIndex(value) ? indexRange(graph, id) : 0, ++stream);
  }
  if (loss.kind != LossSpec::Kind::CrossEntropy && loss.kind != LossSpec::Kind::MeanSquaredError) return;
  const Value& output = graph.value(loss.output);
  std::vector<std::int64_t> shape = output.tensor ? hints(*output.tensor) : std::vector<std::int64_t>{};
  if (shape.empty()) throw UsageError("Output " + output.name + " is a single number; take it as the loss with --loss output:" + output.name + ".");
  shape[0] = shape[0] / exportedBatch(graph) * batch;
  if (loss.kind == LossSpec::Kind::MeanSquaredError) {
    allTargets = synthetic(output.tensor->dtype, shape, 0, ++stream);
  } else {
    const std::int64_t classes = shape.back();
    shape.pop_back();
    allTargets = synthetic(DType::Int64, shape, classes, ++stream);
  }
}

void BatchSource::Impl::readFile(const ModelGraph& graph, const std::string& file) {
  auto tensors = readTensors(file);
  const auto take = [&](const std::string& name) {
    const auto found = tensors.find(name);
    if (found == tensors.end()) throw UsageError("The data file " + file + " lacks the tensor " + name + "; name its tensors after the model's inputs, and target.");
    return found->second;
  };
  for (const ValueId id : graph.inputs) all[id] = take(graph.value(id).name);
  if (loss.kind == LossSpec::Kind::CrossEntropy || loss.kind == LossSpec::Kind::MeanSquaredError) allTargets = take("target");
  for (const auto& [id, tensor] : all) {
    if (tensor.dim() == 0 || tensor.size(0) < batch) {
      throw UsageError("Tensor " + graph.value(id).name + " of " + file + " holds fewer samples than one batch of " + std::to_string(batch) + ".");
    }
  }
}

BatchSource::BatchSource(const ModelGraph& graph, const LossSpec& loss, std::vector<std::int64_t> microbatchSizes, std::uint64_t seed,
                         const std::string& file)
    : impl_(std::make_unique<Impl>()) {
  impl_->loss = loss;
  impl_->sizes = std::move(microbatchSizes);
  for (const std::int64_t size : impl_->sizes) {
    impl_->begins.push_back(impl_->batch);
    impl_->batch += size;
  }
  file.empty() ? impl_->makeSynthetic(graph, seed) : impl_->readFile(graph, file);
}

BatchSource::~BatchSource() = default;
BatchSource::BatchSource(BatchSource&&) noexcept = default;

void BatchSource::beginStep(int step) {
  Impl& d = *impl_;
  const std::int64_t samples = d.all.empty() ? d.batch : d.all.begin()->second.size(0);
  const std::int64_t first = (step % std::max<std::int64_t>(1, samples / d.batch)) * d.batch;
  d.current.clear();
  for (const auto& [id, tensor] : d.all) d.current[id] = tensor.narrow(0, first, d.batch);
  if (d.allTargets.defined()) {
    const std::int64_t rows = d.allTargets.size(0) / samples;
    d.targets = d.allTargets.narrow(0, first * rows, d.batch * rows);
  }
  switch (d.loss.kind) {
    case LossSpec::Kind::CrossEntropy: d.normaliser = d.targets.ne(-100).sum().item<double>(); break;
    case LossSpec::Kind::MeanSquaredError: d.normaliser = static_cast<double>(d.targets.numel()); break;
    case LossSpec::Kind::Sum:
    case LossSpec::Kind::Output: d.normaliser = static_cast<double>(d.batch); break;
  }
  d.normaliser = std::max(d.normaliser, 1.0);
}

at::Tensor BatchSource::input(ValueId input, std::size_t microbatch) const {
  const at::Tensor& batch = impl_->current.at(input);
  return batch.narrow(0, impl_->begins[microbatch], impl_->sizes[microbatch]).clone();  // models may write into their inputs
}

at::Tensor BatchSource::loss(const at::Tensor& output, std::size_t microbatch) const {
  const Impl& d = *impl_;
  const auto target = [&] {
    const std::int64_t rows = d.targets.size(0) / d.batch;
    return d.targets.narrow(0, d.begins[microbatch] * rows, d.sizes[microbatch] * rows);
  };
  switch (d.loss.kind) {
    case LossSpec::Kind::CrossEntropy:
      return at::cross_entropy_loss(output.reshape({-1, output.size(-1)}), target().reshape({-1}), {}, at::Reduction::Sum) / d.normaliser;
    case LossSpec::Kind::MeanSquaredError: return at::mse_loss(output, target(), at::Reduction::Sum) / d.normaliser;
    case LossSpec::Kind::Sum: return output.sum() / d.normaliser;
    case LossSpec::Kind::Output: break;
  }
  return output * (static_cast<double>(d.sizes[microbatch]) / d.normaliser);
}

}  // namespace pw
