#include "backends/torch_data.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "backends/torch_checkpoint.h"
#include "backends/torch_types.h"
#include "schedules/error.h"
#include "simulator/batch.h"

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

namespace {

/// A tensor of all samples at hand, and of this step's batch.
struct Column {
  std::string name;
  std::optional<BatchAxis> axis;
  at::Tensor all, current;
};

bool hasTargets(const LossSpec& loss) { return loss.kind == LossSpec::Kind::CrossEntropy || loss.kind == LossSpec::Kind::MeanSquaredError; }

at::Tensor rowsOf(const at::Tensor& tensor, const std::optional<BatchAxis>& axis, std::int64_t first, std::int64_t count) {
  return axis ? tensor.narrow(static_cast<std::int64_t>(axis->dimension), first * axis->rowsPerSample, count * axis->rowsPerSample) : tensor;
}

std::string textOf(at::IntArrayRef shape) {
  std::string text = "[";
  for (const std::int64_t size : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

/// Takes a tensor out of a data file and compares it with what the model was traced with: type, and sizes but the number of samples.
Column takeColumn(const CheckpointFile& file, const std::string& path, const std::string& name, DType dtype, const std::vector<std::int64_t>& shape,
                  const std::optional<BatchAxis>& axis) {
  Column column{name, axis, file.read(name), {}};
  if (!column.all.defined()) {
    throw UsageError("The data file " + path + " lacks the tensor " + name + "; name its tensors after the model's inputs, and target.");
  }
  const DType stored = dtypeOf(column.all.scalar_type());
  if (stored != dtype) {
    throw UsageError("Tensor " + name + " of " + path + " is of type " + std::string(pw::name(stored)) + ", but the model takes " +
                     std::string(pw::name(dtype)) + "; convert it before saving.");
  }
  bool fits = column.all.dim() == static_cast<std::int64_t>(shape.size());
  std::string wanted = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const bool isBatch = axis && axis->dimension == i;
    const std::string rows = axis && axis->rowsPerSample > 1 ? " x " + std::to_string(axis->rowsPerSample) : "";
    wanted += (i > 0 ? ", " : "") + (isBatch ? "samples" + rows : std::to_string(shape[i]));
    if (fits) fits = isBatch ? column.all.size(static_cast<std::int64_t>(i)) % axis->rowsPerSample == 0 : column.all.size(static_cast<std::int64_t>(i)) == shape[i];
  }
  if (!fits) throw UsageError("Tensor " + name + " of " + path + " has the shape " + textOf(column.all.sizes()) + ", but the model takes " + wanted + "].");
  return column;
}

}  // namespace

struct BatchSource::Impl {
  LossSpec loss;
  DataOptions data;
  std::string outputName;
  std::optional<BatchAxis> outputAxis;
  std::vector<std::int64_t> sizes, begins;
  std::int64_t batch = 0;
  std::int64_t samples = 0;  // at hand: of the whole file, or of one synthetic batch
  std::int64_t classes = 0;
  std::map<ValueId, Column> inputs;
  Column targets;
  double normaliser = 1;

  void checkLoss(const ModelGraph& graph);
  void makeSynthetic(const ModelGraph& graph, std::uint64_t seed);
  void readFile(const ModelGraph& graph);
  void countSamples();
  [[nodiscard]] DType targetType(const ModelGraph& graph) const;
  [[nodiscard]] std::vector<std::int64_t> targetShape(const ModelGraph& graph) const;
  [[nodiscard]] at::Tensor lossOf(const at::Tensor& output, std::int64_t first, std::int64_t count) const;
  [[nodiscard]] at::Tensor own(const at::Tensor& output, std::size_t m) const { return data.masked ? rowsOf(output, outputAxis, begins[m], sizes[m]) : output; }
};

void BatchSource::Impl::checkLoss(const ModelGraph& graph) {
  const Value& output = graph.value(loss.output);
  outputName = output.name;
  outputAxis = batchAxis(graph, loss.output);
  if (hasTargets(loss)) {
    const std::size_t dimensions = output.tensor ? output.tensor->sizes.size() : 0;
    if (dimensions == 0) throw UsageError("Output " + output.name + " is a single number; take it as the loss with --loss output:" + output.name + ".");
    const bool isCrossEntropy = loss.kind == LossSpec::Kind::CrossEntropy;
    if (!outputAxis || (isCrossEntropy && outputAxis->dimension + 1 == dimensions)) {
      throw UsageError("Output " + output.name + " has no batch dimension" + (isCrossEntropy ? " before its classes" : "") +
                       ", so its targets cannot be cut into microbatches; let the model compute its loss and take it with --loss output:NAME.");
    }
    classes = isCrossEntropy ? output.tensor->sizes.back().hint : 0;
  }
  if (data.masked && (!outputAxis || loss.kind == LossSpec::Kind::Output)) {
    throw UsageError("Masked microbatches need the loss cross_entropy, mse or sum of an output with a batch dimension; " + output.name + " cannot be split by samples.");
  }
}

DType BatchSource::Impl::targetType(const ModelGraph& graph) const {
  return loss.kind == LossSpec::Kind::CrossEntropy ? DType::Int64 : graph.value(loss.output).tensor->dtype;
}

std::vector<std::int64_t> BatchSource::Impl::targetShape(const ModelGraph& graph) const {
  std::vector<std::int64_t> shape = hints(*graph.value(loss.output).tensor);
  if (loss.kind == LossSpec::Kind::CrossEntropy) shape.pop_back();
  return shape;
}

void BatchSource::Impl::makeSynthetic(const ModelGraph& graph, std::uint64_t seed) {
  std::uint64_t stream = seed * 1000003U;
  const auto sized = [&](std::vector<std::int64_t> shape, const std::optional<BatchAxis>& axis) {
    if (axis) shape[axis->dimension] = axis->rowsPerSample * batch;
    return shape;
  };
  for (const ValueId id : graph.inputs) {
    const Value& value = graph.value(id);
    const std::optional<BatchAxis> axis = batchAxis(graph, id);
    const std::int64_t range = isIndex(value) ? indexRange(graph, id) : 0;
    inputs[id] = {value.name, axis, synthetic(value.tensor->dtype, sized(hints(*value.tensor), axis), range, ++stream), {}};
  }
  if (!hasTargets(loss)) return;
  targets = {"target", outputAxis, synthetic(targetType(graph), sized(targetShape(graph), outputAxis), classes, ++stream), {}};
}

void BatchSource::Impl::readFile(const ModelGraph& graph) {
  const CheckpointFile file(data.file);
  for (const ValueId id : graph.inputs) {
    const Value& value = graph.value(id);
    inputs[id] = takeColumn(file, data.file, value.name, value.tensor->dtype, hints(*value.tensor), batchAxis(graph, id));
  }
  if (hasTargets(loss)) targets = takeColumn(file, data.file, "target", targetType(graph), targetShape(graph), outputAxis);
}

void BatchSource::Impl::countSamples() {
  const Column* first = nullptr;
  samples = batch;
  const auto count = [&](const Column& column) {
    if (!column.all.defined() || !column.axis) return;
    const std::int64_t held = column.all.size(static_cast<std::int64_t>(column.axis->dimension)) / column.axis->rowsPerSample;
    if (held < batch) {
      throw UsageError("Tensor " + column.name + " of " + data.file + " holds " + std::to_string(held) + " samples, fewer than one batch of " + std::to_string(batch) + ".");
    }
    if (first != nullptr && held != samples) {
      throw UsageError("Tensor " + column.name + " of " + data.file + " holds " + std::to_string(held) + " samples, but " + first->name + " " + std::to_string(samples) + ".");
    }
    first = &column;
    samples = held;
  };
  for (const auto& [id, column] : inputs) count(column);
  count(targets);
}

BatchSource::BatchSource(const ModelGraph& graph, const LossSpec& loss, std::vector<std::int64_t> microbatchSizes, std::uint64_t seed,
                         const DataOptions& data)
    : impl_(std::make_unique<Impl>()) {
  impl_->loss = loss;
  impl_->data = data;
  impl_->sizes = std::move(microbatchSizes);
  for (const std::int64_t size : impl_->sizes) {
    impl_->begins.push_back(impl_->batch);
    impl_->batch += size;
  }
  for (const ValueId id : graph.inputs) {
    if (!graph.value(id).tensor) throw UsageError("Input " + graph.value(id).name + " is no tensor; export the model with it as a constant.");
  }
  impl_->checkLoss(graph);
  data.file.empty() ? impl_->makeSynthetic(graph, seed) : impl_->readFile(graph);
  impl_->countSamples();
}

BatchSource::~BatchSource() = default;
BatchSource::BatchSource(BatchSource&&) noexcept = default;

void BatchSource::beginStep(int step) {
  Impl& d = *impl_;
  const std::int64_t first = step % (d.samples / d.batch) * d.batch;
  for (auto& [id, column] : d.inputs) column.current = rowsOf(column.all, column.axis, first, d.batch);
  if (d.targets.all.defined()) d.targets.current = rowsOf(d.targets.all, d.targets.axis, first, d.batch);
  switch (d.loss.kind) {
    case LossSpec::Kind::CrossEntropy: {
      const at::Tensor& labels = d.targets.current;
      const at::Tensor wrong = labels.ne(-100).logical_and(labels.lt(0).logical_or(labels.ge(d.classes)));
      if (wrong.any().item<bool>()) {
        throw UsageError("Tensor target of " + d.data.file + " holds the class " + std::to_string(labels.masked_select(wrong)[0].item<std::int64_t>()) + ", but " +
                         d.outputName + " has " + std::to_string(d.classes) + " classes, from 0 (and -100 for ignored ones).");
      }
      d.normaliser = labels.ne(-100).sum().item<double>();
      break;
    }
    case LossSpec::Kind::MeanSquaredError: d.normaliser = static_cast<double>(d.targets.current.numel()); break;
    case LossSpec::Kind::Sum:
    case LossSpec::Kind::Output: d.normaliser = static_cast<double>(d.batch); break;
  }
  d.normaliser = std::max(d.normaliser, 1.0);
}

at::Tensor BatchSource::input(ValueId input, std::size_t microbatch) const {
  const Impl& d = *impl_;
  const Column& column = d.inputs.at(input);
  const at::Tensor rows = d.data.masked ? column.current : rowsOf(column.current, column.axis, d.begins[microbatch], d.sizes[microbatch]);
  return rows.clone(at::MemoryFormat::Contiguous);
}

at::Tensor BatchSource::Impl::lossOf(const at::Tensor& output, std::int64_t first, std::int64_t count) const {
  at::Tensor target;
  if (hasTargets(loss)) {
    target = onDevice(rowsOf(targets.current, targets.axis, first, count), output.device());
    const bool isCrossEntropy = loss.kind == LossSpec::Kind::CrossEntropy;
    const auto fitting = isCrossEntropy && output.dim() > 0 ? output.sizes().slice(0, static_cast<std::size_t>(output.dim() - 1)) : output.sizes();
    if (target.sizes() != fitting) {
      throw UsageError("Output " + outputName + " has the shape " + textOf(output.sizes()) + " for " + std::to_string(count) + " samples, but its targets have " + textOf(target.sizes()) + ".");
    }
  }
  switch (loss.kind) {
    case LossSpec::Kind::CrossEntropy:
      return at::cross_entropy_loss(output.reshape({-1, output.size(-1)}), target.reshape({-1}), {}, at::Reduction::Sum) / normaliser;
    case LossSpec::Kind::MeanSquaredError: return at::mse_loss(output, target, at::Reduction::Sum) / normaliser;
    case LossSpec::Kind::Sum: return output.sum() / normaliser;
    case LossSpec::Kind::Output: break;
  }
  if (output.numel() != 1) {
    throw UsageError("Output " + outputName + " has the shape " + textOf(output.sizes()) + ", but a loss is a single number; take its sum with --loss sum.");
  }
  return output * (static_cast<double>(count) / normaliser);
}

at::Tensor BatchSource::loss(const at::Tensor& output, std::size_t microbatch) const {
  return impl_->lossOf(impl_->own(output, microbatch), impl_->begins[microbatch], impl_->sizes[microbatch]);
}

at::Tensor BatchSource::lossOver(const std::vector<at::Tensor>& outputs, std::size_t first) const {
  const Impl& d = *impl_;
  if (d.loss.kind == LossSpec::Kind::Output || !d.outputAxis) {  // values that cannot be put together
    at::Tensor sum = loss(outputs.front(), first);
    for (std::size_t i = 1; i < outputs.size(); ++i) sum = sum + loss(outputs[i], first + i);
    return sum;
  }
  std::vector<at::Tensor> rows;
  std::int64_t count = 0;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    rows.push_back(d.own(outputs[i], first + i));
    count += d.sizes[first + i];
  }
  return d.lossOf(at::cat(rows, static_cast<std::int64_t>(d.outputAxis->dimension)), d.begins[first], count);
}

}  // namespace pw
