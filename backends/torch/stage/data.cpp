#include "backends/torch/stage/data.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "backends/torch/program/types.h"
#include "backends/torch/stage/checkpoint.h"
#include "backends/torch/stage/synthetic.h"
#include "schedules/error.h"
#include "simulator/model/batch.h"
#include "simulator/model/loss_count.h"

namespace pw {
namespace {

std::vector<std::int64_t> hints(const TensorMeta& meta) {
  std::vector<std::int64_t> sizes;
  for (const SymbolicInt& size : meta.sizes) sizes.push_back(size.hint);
  return sizes;
}

}  // namespace

LossSpec lossSpec(const ModelGraph& graph, const Loss& loss) { return {loss.kind, graph.outputs[outputOf(graph, loss)]}; }

namespace {

/// A tensor of all samples at hand, and of this step's batch.
struct Column {
  std::string name;
  std::optional<BatchAxis> axis;
  at::Tensor all, current;
};

bool hasTargets(const LossSpec& loss) { return loss.kind == LossKind::CrossEntropy || loss.kind == LossKind::MeanSquaredError; }

at::Tensor rowsOf(const at::Tensor& tensor, const std::optional<BatchAxis>& axis, std::int64_t first, std::int64_t count) {
  if (!axis) return tensor;
  const auto dimension = static_cast<std::int64_t>(axis->dimension);
  if (axis->outer == 1) return tensor.narrow(dimension, first * axis->rowsPerSample, count * axis->rowsPerSample);
  const at::Tensor blocks = tensor.unflatten(dimension, {axis->outer, tensor.size(dimension) / axis->outer});
  return blocks.narrow(dimension + 1, first * axis->rowsPerSample, count * axis->rowsPerSample).flatten(dimension, dimension + 1);
}

/// Undoes `rowsOf` of parts.
at::Tensor joined(std::vector<at::Tensor> parts, const BatchAxis& axis) {
  const auto dimension = static_cast<std::int64_t>(axis.dimension);
  if (axis.outer == 1) return at::cat(parts, dimension);
  for (at::Tensor& part : parts) part = part.unflatten(dimension, {axis.outer, part.size(dimension) / axis.outer});
  return at::cat(parts, dimension + 1).flatten(dimension, dimension + 1);
}

/// As `rowsOf`, from the first of all `samples` again after the last.
at::Tensor rowsAround(const at::Tensor& tensor, const std::optional<BatchAxis>& axis, std::int64_t first, std::int64_t count,
                      std::int64_t samples) {
  const std::int64_t ahead = std::min(count, samples - first);
  if (!axis || ahead == count) return rowsOf(tensor, axis, first, count);
  return joined({rowsOf(tensor, axis, first, ahead), rowsOf(tensor, axis, 0, count - ahead)}, *axis);
}

std::string textOf(at::IntArrayRef shape) {
  std::string text = "[";
  for (const std::int64_t size : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

/// Where tensors are from, for sentences.
struct Place {
  std::string name, subject, toConvert;
};

Place fileAt(const std::string& path) { return {path, "The data file " + path, "before saving"}; }
Place batchOf(const BatchFeed& feed, int step) {
  const std::string number = std::to_string(step);
  if (feed.name.empty()) return {"the batch of step " + number, "The batch of step " + number, "first"};
  return {"batch " + number + " of " + feed.name, "Batch " + number + " of " + feed.name, "there"};
}

/// Compares a tensor with what the model was traced with: type, and sizes but the number of samples.
Column takeColumn(at::Tensor tensor, const Place& place, const std::string& name, DType dtype, const std::vector<std::int64_t>& shape,
                  const std::optional<BatchAxis>& axis) {
  Column column{name, axis, std::move(tensor), {}};
  if (!column.all.defined())
    throw UsageError(place.subject + " lacks the tensor " + name + "; name its tensors after the model's inputs, and target.");
  const DType stored = dtypeOf(column.all.scalar_type());
  if (stored != dtype) {
    throw UsageError("Tensor " + name + " of " + place.name + " is of type " + std::string(pw::nameOf(stored)) + ", but the model takes " +
                     std::string(pw::nameOf(dtype)) + "; convert it " + place.toConvert + ".");
  }
  bool fits = column.all.dim() == static_cast<std::int64_t>(shape.size());
  std::string wanted = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const bool isBatch = axis && axis->dimension == i;
    const std::int64_t perSample = axis ? axis->rowsPerSample * axis->outer : 1;
    const std::string rows = perSample > 1 ? " x " + std::to_string(perSample) : "";
    wanted += (i > 0 ? ", " : "") + (isBatch ? "samples" + rows : std::to_string(shape[i]));
    if (fits)
      fits = isBatch ? column.all.size(static_cast<std::int64_t>(i)) % perSample == 0
                     : column.all.size(static_cast<std::int64_t>(i)) == shape[i];
  }
  if (!fits)
    throw UsageError("Tensor " + name + " of " + place.name + " has the shape " + textOf(column.all.sizes()) + ", but the model takes " +
                     wanted + "].");
  return column;
}

}  // namespace

struct BatchSource::Impl {
  LossSpec loss;
  DataOptions data;
  const ModelGraph* graph = nullptr;
  Place place;  ///< of the tensors at hand
  std::string outputName;
  std::optional<BatchAxis> outputAxis;
  std::vector<std::int64_t> sizes, begins;
  std::int64_t batch = 0;
  std::int64_t samples = 0;  // at hand: of the whole file, or of one synthetic batch
  std::int64_t classes = 0;
  std::map<ValueId, Column> inputs;
  Column targets;
  double normaliser = 1;
  std::vector<double> counts;  ///< what each microbatch's own loss weighs; none: its samples

  void checkLoss();
  void makeSynthetic(std::uint64_t seed);
  void read(const std::function<at::Tensor(const std::string&)>& tensor);
  void readFile();
  void takeBatch(int step);
  void countSamples();
  [[nodiscard]] DType targetType() const;
  [[nodiscard]] std::vector<std::int64_t> targetShape() const;
  [[nodiscard]] at::Tensor lossOf(const at::Tensor& output, std::int64_t first, std::int64_t count) const;
  [[nodiscard]] at::Tensor ownLoss(const at::Tensor& output, std::size_t m) const;
  [[nodiscard]] at::Tensor own(const at::Tensor& output, std::size_t m) const {
    return data.masked ? rowsOf(output, outputAxis, begins[m], sizes[m]) : output;
  }
};

void BatchSource::Impl::checkLoss() {
  const Value& output = graph->value(loss.output);
  outputName = output.name;
  outputAxis = batchAxis(*graph, loss.output);
  if (hasTargets(loss)) {
    const std::size_t dimensions = output.tensor ? output.tensor->sizes.size() : 0;
    if (dimensions == 0)
      throw UsageError("Output " + output.name + " is a single number; take it as the loss with --loss output:" + output.name + ".");
    const bool isCrossEntropy = loss.kind == LossKind::CrossEntropy;
    if (!outputAxis || (isCrossEntropy && outputAxis->dimension + 1 == dimensions)) {
      throw UsageError(
          "Output " + output.name + " has no batch dimension" + (isCrossEntropy ? " before its classes" : "") +
          ", so its targets cannot be cut into microbatches; let the model compute its loss and take it with --loss output:NAME.");
    }
    classes = isCrossEntropy ? output.tensor->sizes.back().hint : 0;
  }
  if (data.masked && (!outputAxis || loss.kind == LossKind::Output)) {
    throw UsageError("Masked microbatches need the loss cross_entropy, mse or sum of an output with a batch dimension; " + output.name +
                     " cannot be split by samples.");
  }
}

DType BatchSource::Impl::targetType() const {
  return loss.kind == LossKind::CrossEntropy ? DType::Int64 : graph->value(loss.output).tensor->dtype;
}

std::vector<std::int64_t> BatchSource::Impl::targetShape() const {
  std::vector<std::int64_t> shape = hints(*graph->value(loss.output).tensor);
  if (loss.kind == LossKind::CrossEntropy) shape.pop_back();
  return shape;
}

void BatchSource::Impl::makeSynthetic(std::uint64_t seed) {
  samples = batch;
  std::uint64_t stream = seed * 1000003U;
  const auto sized = [&](std::vector<std::int64_t> shape, const std::optional<BatchAxis>& axis) {
    if (axis) shape[axis->dimension] = axis->outer * axis->rowsPerSample * batch;
    return shape;
  };
  for (const ValueId id : graph->inputs) {
    const Value& value = graph->value(id);
    const std::optional<BatchAxis> axis = batchAxis(*graph, id);
    inputs[id] = {
        value.name, axis, syntheticTensor(value.tensor->dtype, sized(hints(*value.tensor), axis), indexRange(*graph, id), ++stream), {}};
    const auto ignored = data.ignoreSome && axis ? ignoredTarget(*graph, id) : std::nullopt;
    if (ignored) ignoreSome(inputs[id].all, static_cast<std::int64_t>(axis->dimension), batch, *ignored);
  }
  if (!hasTargets(loss)) return;
  targets = {"target", outputAxis, syntheticTensor(targetType(), sized(targetShape(), outputAxis), classes, ++stream), {}};
}

void BatchSource::Impl::read(const std::function<at::Tensor(const std::string&)>& tensor) {
  for (const ValueId id : graph->inputs) {
    const Value& value = graph->value(id);
    inputs[id] = takeColumn(tensor(value.name), place, value.name, value.tensor->dtype, hints(*value.tensor), batchAxis(*graph, id));
  }
  if (hasTargets(loss)) targets = takeColumn(tensor("target"), place, "target", targetType(), targetShape(), outputAxis);
}

void BatchSource::Impl::readFile() {
  const CheckpointFile file(data.file);
  place = fileAt(data.file);
  read([&](const std::string& name) { return file.read(name); });
  countSamples();
  const std::int64_t all = data.evaluatedSteps * batch;
  if (all <= samples || all % samples == 0) return;
  throw UsageError(place.subject + " holds " + std::to_string(samples) + " samples, so " + std::to_string(data.evaluatedSteps) +
                   " batches of " + std::to_string(batch) + " would count some of them more often than others; evaluate " +
                   std::to_string(samples / batch) + " (--steps), or plan for a batch that " + std::to_string(samples) +
                   " is a multiple of.");
}

/// The feed's batch: exactly as many samples as the plan has.
void BatchSource::Impl::takeBatch(int step) {
  const NamedTensors tensors = data.feed->batch(step);
  place = batchOf(*data.feed, step);
  read([&](const std::string& name) {
    const auto found = tensors.find(name);
    return found == tensors.end() ? at::Tensor() : static_cast<const at::Tensor*>(found->second.get())->detach();
  });
  countSamples();
  if (samples == batch) return;
  throw UsageError(place.subject + " holds " + std::to_string(samples) + " samples, but the plan is for batches of " +
                   std::to_string(batch) + "; cut it to that size.");
}

void BatchSource::Impl::countSamples() {
  const Column* first = nullptr;
  samples = batch;
  const auto count = [&](const Column& column) {
    if (!column.all.defined() || !column.axis) return;
    const std::int64_t held =
        column.all.size(static_cast<std::int64_t>(column.axis->dimension)) / (column.axis->rowsPerSample * column.axis->outer);
    if (held < batch) {
      throw UsageError("Tensor " + column.name + " of " + place.name + " holds " + std::to_string(held) +
                       " samples, fewer than one batch of " + std::to_string(batch) + ".");
    }
    if (first != nullptr && held != samples) {
      throw UsageError("Tensor " + column.name + " of " + place.name + " holds " + std::to_string(held) + " samples, but " + first->name +
                       " " + std::to_string(samples) + ".");
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
  impl_->graph = &graph;
  impl_->loss = loss;
  impl_->data = data;
  impl_->sizes = std::move(microbatchSizes);
  for (const std::int64_t size : impl_->sizes) {
    impl_->begins.push_back(impl_->batch);
    impl_->batch += size;
  }
  for (const ValueId id : graph.inputs) {
    if (!graph.value(id).tensor)
      throw UsageError("Input " + graph.value(id).name + " is not a tensor; export the model with it as a constant.");
  }
  impl_->checkLoss();
  if (data.feed) return;  // each step brings its own
  data.file.empty() ? impl_->makeSynthetic(seed) : impl_->readFile();
}

BatchSource::~BatchSource() = default;
BatchSource::BatchSource(BatchSource&&) noexcept = default;

void BatchSource::keepOnly(const std::vector<ValueId>& inputs, bool targets) {
  if (impl_->data.feed || !impl_->data.file.empty()) return;  // those are the caller's, or mapped
  std::erase_if(impl_->inputs, [&](const auto& column) { return std::ranges::find(inputs, column.first) == inputs.end(); });
  if (!targets) impl_->targets = {};
}

void BatchSource::beginStep(int step) {
  Impl& d = *impl_;
  if (d.data.feed) d.takeBatch(step);
  const std::int64_t first = step % d.samples * d.batch % d.samples;
  const auto ofStep = [&](const Column& column) { return rowsAround(column.all, column.axis, first, d.batch, d.samples); };
  for (auto& [id, column] : d.inputs) column.current = ofStep(column);
  if (d.targets.all.defined()) d.targets.current = ofStep(d.targets);
  d.normaliser = 1;
  if (hasTargets(d.loss) && !d.targets.current.defined()) return;  // nobody computes the loss here
  switch (d.loss.kind) {
    case LossKind::CrossEntropy: {
      const at::Tensor& labels = d.targets.current;
      const at::Tensor wrong = labels.ne(-100).logical_and(labels.lt(0).logical_or(labels.ge(d.classes)));
      if (wrong.any().item<bool>()) {
        throw UsageError("Tensor target of " + d.place.name + " holds the class " +
                         std::to_string(labels.masked_select(wrong)[0].item<std::int64_t>()) + ", but " + d.outputName + " has " +
                         std::to_string(d.classes) + " classes, from 0 (and -100 for ignored ones).");
      }
      d.normaliser = labels.ne(-100).sum().item<double>();
      if (d.normaliser == 0)  // PyTorch's mean of none is not a number
        throw UsageError("All classes of tensor target of " + d.place.name + " are -100, which is ignored, in step " +
                         std::to_string(step) + ": it has no loss; check the data, or leave these samples out.");
      break;
    }
    case LossKind::MeanSquaredError: d.normaliser = static_cast<double>(d.targets.current.numel()); break;
    case LossKind::Sum:
    case LossKind::Output: d.normaliser = static_cast<double>(d.batch); break;
  }
  d.normaliser = std::max(d.normaliser, 1.0);
}

std::uint64_t BatchSource::digest() const {
  constexpr std::int64_t kSample = 4096;
  std::uint64_t sum = 0xcbf29ce484222325;  // FNV-1a
  const auto add = [&](const void* data, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; ++i) sum = (sum ^ static_cast<const unsigned char*>(data)[i]) * 0x100000001b3;
  };
  const auto addColumn = [&](const Column& column) {
    if (!column.current.defined()) return;
    const std::int64_t count = column.current.numel(), stride = std::max<std::int64_t>(1, count / kSample);
    const at::Tensor sample = column.current.reshape({-1}).slice(0, 0, count, stride).cpu().contiguous();
    add(column.name.data(), column.name.size());
    add(column.current.sizes().data(), column.current.sizes().size() * sizeof(std::int64_t));
    add(sample.const_data_ptr(), sample.nbytes());
  };
  for (const auto& [id, column] : impl_->inputs) addColumn(column);
  addColumn(impl_->targets);
  return sum;
}

std::uint64_t checkBatch(const ModelGraph& graph, const Plan& plan, const DataOptions& data, int step) {
  BatchSource source(graph, lossSpec(graph, plan.loss), microbatchSizes(plan.batch, plan.replicas * plan.schedule.microbatches), 0, data);
  source.beginStep(step);
  return source.digest();
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
    const bool isCrossEntropy = loss.kind == LossKind::CrossEntropy;
    const auto fitting =
        isCrossEntropy && output.dim() > 0 ? output.sizes().slice(0, static_cast<std::size_t>(output.dim() - 1)) : output.sizes();
    if (target.sizes() != fitting) {
      throw UsageError("Output " + outputName + " has the shape " + textOf(output.sizes()) + " for " + std::to_string(count) +
                       " samples, but its targets have " + textOf(target.sizes()) + ".");
    }
  }
  switch (loss.kind) {
    case LossKind::CrossEntropy:
      return at::cross_entropy_loss(output.reshape({-1, output.size(-1)}), target.reshape({-1}), {}, at::Reduction::Sum) / normaliser;
    case LossKind::MeanSquaredError: return at::mse_loss(output, target, at::Reduction::Sum) / normaliser;
    case LossKind::Sum: return output.sum() / normaliser;
    case LossKind::Output: break;
  }
  return output;
}

/// What the model computed itself.
at::Tensor BatchSource::Impl::ownLoss(const at::Tensor& output, std::size_t m) const {
  if (output.numel() != 1) {
    throw UsageError("Output " + outputName + " has the shape " + textOf(output.sizes()) +
                     ", but a loss is a single number; take its sum with --loss sum.");
  }
  const double weight = counts.empty() ? static_cast<double>(sizes[m]) : counts[m];
  return output * (weight / normaliser);
}

void BatchSource::weigh(std::vector<double> counts, double ofAll) {
  Impl& d = *impl_;
  if (ofAll <= 0)  // as of classes that are all ignored
    throw UsageError("Nothing in the batch of " + d.place.name +
                     " counts for the loss (--loss-count), so the step has none; check the data, or leave these samples out.");
  d.counts = std::move(counts);
  d.normaliser = ofAll;
}

bool BatchSource::weighsNothing(std::size_t microbatch) const { return !impl_->counts.empty() && impl_->counts[microbatch] == 0; }

at::Tensor BatchSource::loss(const at::Tensor& output, std::size_t microbatch) const {
  if (impl_->loss.kind == LossKind::Output) return impl_->ownLoss(output, microbatch);
  return impl_->lossOf(impl_->own(output, microbatch), impl_->begins[microbatch], impl_->sizes[microbatch]);
}

at::Tensor BatchSource::lossOver(const std::vector<at::Tensor>& outputs, std::size_t first) const {
  const Impl& d = *impl_;
  if (d.loss.kind == LossKind::Output || !d.outputAxis) {  // values that cannot be put together
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
  return d.lossOf(joined(rows, *d.outputAxis), d.begins[first], count);
}

}  // namespace pw
