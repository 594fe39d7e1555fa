#include "simulator/model/model_graph.h"
#include "simulator/model/join.h"

#include <fmt/format.h>
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <unordered_set>

#include "schedules/answer.h"
#include "schedules/error.h"
#include "simulator/model/batch.h"
#include "simulator/model/graph_facts.h"
#include "simulator/model/symbolic.h"

namespace pw {

Bytes bytesPerElement(DType dtype) {
  switch (dtype) {
    case DType::UInt8:
    case DType::Int8:
    case DType::Float8:
    case DType::Bool: return 1;
    case DType::Int16:
    case DType::Float16:
    case DType::BFloat16: return 2;
    case DType::Int32:
    case DType::Float32:
    case DType::ComplexHalf: return 4;
    case DType::Int64:
    case DType::Float64:
    case DType::ComplexFloat: return 8;
    case DType::ComplexDouble: return 16;
    case DType::Unknown: break;
  }
  return 0;
}

unsigned widthOf(DType dtype) { return static_cast<unsigned>(bytesPerElement(dtype).value); }

bool isDifferentiable(DType dtype) {
  switch (dtype) {
    case DType::Float8:
    case DType::Float16:
    case DType::BFloat16:
    case DType::Float32:
    case DType::Float64:
    case DType::ComplexHalf:
    case DType::ComplexFloat:
    case DType::ComplexDouble: return true;
    case DType::Unknown:
    case DType::UInt8:
    case DType::Int8:
    case DType::Int16:
    case DType::Int32:
    case DType::Int64:
    case DType::Bool: break;
  }
  return false;
}

std::string_view nameOf(DType dtype) {
  switch (dtype) {
    case DType::UInt8: return "uint8";
    case DType::Int8: return "int8";
    case DType::Int16: return "int16";
    case DType::Int32: return "int32";
    case DType::Int64: return "int64";
    case DType::Float8: return "float8";
    case DType::Float16: return "float16";
    case DType::Float32: return "float32";
    case DType::Float64: return "float64";
    case DType::ComplexHalf: return "complex32";
    case DType::ComplexFloat: return "complex64";
    case DType::ComplexDouble: return "complex128";
    case DType::Bool: return "bool";
    case DType::BFloat16: return "bfloat16";
    case DType::Unknown: break;
  }
  return "unknown";
}

namespace {

/// Collects value ids of an argument in order, each once.
struct ReadCollector {
  static constexpr std::size_t kFew = 16;  ///< that are faster compared one by one than hashed
  std::vector<ValueId>& reads;
  std::unordered_set<std::int32_t> seen{};  ///< all of them, once they are more

  void add(ValueId id) {
    if (reads.size() < kFew) {
      if (std::ranges::find(reads, id) == reads.end()) reads.push_back(id);
      return;
    }
    if (seen.empty()) {
      for (const ValueId read : reads) seen.insert(read.value);
    }
    if (seen.insert(id.value).second) reads.push_back(id);
  }
  void operator()(ValueId id) { add(id); }
  void operator()(const std::vector<ValueId>& ids) {
    for (const ValueId id : ids) {
      add(id);
    }
  }
  void operator()(const std::vector<std::optional<ValueId>>& ids) {
    for (const std::optional<ValueId>& id : ids) {
      if (id) {
        add(*id);
      }
    }
  }
  void operator()(const std::vector<IntOrValue>& elements) {
    for (const IntOrValue& element : elements) {
      if (const auto* id = std::get_if<ValueId>(&element)) {
        add(*id);
      }
    }
  }
  template <class Other>
  void operator()(const Other&) {}
};

/// The batch dimension and the number it has: `batch = constant + factor · symbol`.
struct BatchDimension {
  std::string symbol;  ///< empty for a fixed batch
  LinearForm form;
  std::int64_t exported = 1;
};

/// The form of an input's size. Throws Error where neither 1 nor 2 as its symbol gives a value: the archive is damaged.
std::optional<LinearForm> formOfInput(const SymbolicInt& size) {
  std::optional<LinearForm> form = linearForm(size);
  const std::set<std::string> symbols = symbolsOf(size);
  if (form || symbols.size() != 1) return form;
  const Bindings one{{*symbols.begin(), 1}}, two{{*symbols.begin(), 2}};
  if (!knownNumber(size, one) && !knownNumber(size, two)) throw Error(whyUnknown(size, one));
  return std::nullopt;
}

/// The batch as this size shows it: its symbol, or a fixed number of samples.
BatchDimension batchOf(const SymbolicInt& size) {
  if (!size.expression.empty()) {
    if (const std::optional<LinearForm> form = formOfInput(size)) return {form->symbol, *form, size.hint};
  }
  BatchDimension fixed;
  fixed.exported = size.hint;
  return fixed;
}

/// The first symbolic batch of these sizes, else the first of them.
BatchDimension firstBatch(const std::vector<const SymbolicInt*>& sizes) {
  for (const SymbolicInt* size : sizes) {
    if (BatchDimension batch = batchOf(*size); !batch.symbol.empty()) return batch;
  }
  return sizes.empty() ? BatchDimension() : batchOf(*sizes.front());
}

/// The symbol that most inputs have in a dimension after their first.
BatchDimension laterBatch(const ModelGraph& graph) {
  std::map<std::string, int> inputsWith;
  std::vector<BatchDimension> found;
  for (const ValueId id : graph.inputs) {
    const Value& input = graph.value(id);
    std::unordered_set<std::string> ofThis;
    for (std::size_t d = 1; input.tensor && d < input.tensor->sizes.size(); ++d) {
      BatchDimension batch = batchOf(input.tensor->sizes[d]);
      if (batch.symbol.empty() || !ofThis.insert(batch.symbol).second) continue;
      ++inputsWith[batch.symbol];
      found.push_back(std::move(batch));
    }
  }
  const auto most = std::max_element(found.begin(), found.end(),
                                     [&](const auto& a, const auto& b) { return inputsWith[a.symbol] < inputsWith[b.symbol]; });
  return most == found.end() ? BatchDimension() : *most;
}

BatchDimension findBatch(const ModelGraph& graph) {
  std::vector<const SymbolicInt*> first;
  for (const ValueId id : graph.inputs) {
    const Value& input = graph.value(id);
    if (!input.tensor || input.tensor->sizes.empty()) continue;
    first.push_back(&input.tensor->sizes.front());
  }
  BatchDimension batch = firstBatch(first);
  if (!batch.symbol.empty()) return batch;
  BatchDimension later = laterBatch(graph);
  return later.symbol.empty() ? batch : later;
}

/// Gives every symbol of `number` that `bindings` lacks its value at export.
void bindAsExported(const SymbolicInt& number, Bindings& bindings) {
  if (number.expression.empty()) {
    return;
  }
  if (const std::optional<LinearForm> form = formOfInput(number)) {
    if (const std::optional<std::int64_t> value = solve(*form, number.hint)) {
      bindings.try_emplace(form->symbol, *value);
    }
  }
}

}  // namespace

std::vector<ValueId> readsOf(const Node& node) {
  std::vector<ValueId> reads;
  reads.reserve(node.inputs.size());
  ReadCollector collector{reads};
  for (const NamedArgument& input : node.inputs) {
    std::visit(collector, input.value);
  }
  return reads;
}

std::string batchSymbol(const ModelGraph& graph) { return findBatch(graph).symbol; }

std::int64_t exportedBatch(const ModelGraph& graph) { return findBatch(graph).exported; }

namespace {

/// The value of the batch's symbol, 0 where the batch is fixed; or why the model cannot run so.
Answer<std::int64_t> symbolFor(const ModelGraph& graph, const BatchDimension& dimension, std::int64_t batch) {
  if (dimension.symbol.empty()) {
    if (batch == dimension.exported) return 0;
    if (isLayerChain(graph))
      return Impossible{fmt::format("layer table {} has costs of microbatches of {}, not {}", graph.name, dimension.exported, batch)};
    return Impossible{
        fmt::format("{} was exported with a fixed batch of {} and cannot run with {}; export it with a dynamic batch "
                    "dimension, or use a batch of {}",
                    graph.name, dimension.exported, batch, dimension.exported)};
  }
  if (const std::optional<std::int64_t> value = batch < 1 ? std::nullopt : solve(dimension.form, batch)) return *value;
  return Impossible{fmt::format("{} cannot run with a batch of {}: the batch must be positive{}", graph.name, batch,
                                dimension.form.factor == 1 ? "" : fmt::format(" and fit its step of {}", dimension.form.factor))};
}

}  // namespace

std::optional<Impossible> obstacleToBatch(const ModelGraph& graph, std::int64_t batch) {
  const Answer<std::int64_t> symbol = symbolFor(graph, findBatch(graph), batch);
  return symbol ? std::nullopt : std::optional(symbol.refusal());
}

Bindings bindBatch(const ModelGraph& graph, std::int64_t batch) {
  const BatchDimension dimension = findBatch(graph);
  const std::int64_t symbol = symbolFor(graph, dimension, batch).orThrow();
  Bindings bindings;
  if (!dimension.symbol.empty()) bindings.emplace(dimension.symbol, symbol);
  for (const ValueId id : graph.inputs) {
    const Value& input = graph.value(id);
    if (input.symbolic) {
      bindAsExported(*input.symbolic, bindings);
    }
    if (input.tensor) {
      for (const SymbolicInt& size : input.tensor->sizes) {
        bindAsExported(size, bindings);
      }
    }
  }
  return bindings;
}

}  // namespace pw
