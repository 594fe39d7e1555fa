#include "simulator/model/batch.h"

#include <algorithm>
#include <set>
#include <string>

#include "simulator/model/batch_mixing.h"
#include "simulator/model/symbolic.h"

namespace pw {
namespace {

/// Whether the size doubles with the symbol; not for sizes with symbols that are known only when the model runs.
bool isProportional(const SymbolicInt& size, const std::string& symbol, const Bindings& exported) {
  const std::set<std::string> symbols = symbolsOf(size);
  if (!symbols.contains(symbol)) return false;
  if (!std::ranges::all_of(symbols, [&](const std::string& s) { return exported.contains(s); })) return false;
  Bindings doubled = exported;
  doubled[symbol] *= 2;
  return evaluate(size, doubled) == 2 * evaluate(size, exported);
}

}  // namespace

std::optional<BatchAxis> batchAxisBySize(const ModelGraph& graph, ValueId id) {
  const Value& value = graph.value(id);
  if (!value.tensor || value.tensor->sizes.empty()) return std::nullopt;
  const auto& sizes = value.tensor->sizes;
  const std::int64_t batch = exportedBatch(graph);
  const std::string symbol = batchSymbol(graph);
  const auto isMultiple = [&](std::int64_t size) { return batch > 0 && size > 0 && size % batch == 0; };
  if (symbol.empty()) {
    const std::int64_t first = sizes.front().hint;
    const bool cuts = value.origin == ValueOrigin::Input ? first == batch : isMultiple(first);
    return cuts && isMultiple(first) ? std::optional<BatchAxis>({0, first / batch, 1}) : std::nullopt;
  }
  const Bindings exported = bindBatch(graph, batch);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (isMultiple(sizes[i].hint) && isProportional(sizes[i], symbol, exported)) return BatchAxis{i, sizes[i].hint / batch, 1};
  }
  return std::nullopt;
}

std::optional<BatchAxis> batchAxis(const ModelGraph& graph, ValueId id) {
  std::optional<BatchAxis> axis = batchAxisBySize(graph, id);
  if (!axis || axis->rowsPerSample == 1 || graph.value(id).origin != ValueOrigin::Node) return axis;
  const SampleFlow flow = sampleFlows(graph)[id.index()];
  if (flow.kind != SampleFlow::Kind::Along || flow.layout.dimension != axis->dimension ||
      flow.layout.outer * flow.layout.inner != axis->rowsPerSample)
    return axis;
  axis->outer = flow.layout.outer;
  axis->rowsPerSample = flow.layout.inner;
  return axis;
}

std::int64_t tokensPerSample(const ModelGraph& graph) {
  for (const ValueId input : graph.inputs) {
    const auto& tensor = graph.value(input).tensor;
    if (!tensor || (tensor->dtype != DType::Int64 && tensor->dtype != DType::Int32) || tensor->sizes.size() != 2) continue;
    const std::optional<BatchAxis> axis = batchAxisBySize(graph, input);
    if (axis && axis->rowsPerSample == 1) return tensor->sizes[1 - axis->dimension].hint;
  }
  return 0;
}

}  // namespace pw
