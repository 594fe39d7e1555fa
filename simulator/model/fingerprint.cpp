#include "simulator/model/fingerprint.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <variant>

#include "simulator/model/symbolic.h"
#include "simulator/text/digest.h"

namespace pw {
namespace {

constexpr std::size_t kDigits = 32, kNodeDigits = 4;

/// Writes parts of a graph as text that is equal for equal parts.
class Writer {
 public:
  std::string text(const SymbolicInt& number) {
    if (number.expression.empty()) return std::to_string(number.hint);
    return mapSymbols(number.expression, [&](const std::string& symbol, std::string_view) {
      return fmt::format("s{}", symbols_.emplace(symbol, symbols_.size()).first->second);
    });
  }
  std::string text(const TensorMeta& tensor) {
    std::string sizes;
    for (const SymbolicInt& size : tensor.sizes) sizes += (sizes.empty() ? " " : "x") + text(size);
    return std::string(nameOf(tensor.dtype)) + (sizes.empty() ? " scalar" : sizes);
  }
  std::string text(const Value& value) {
    std::string text = fmt::format("{} {}", static_cast<int>(value.origin), value.origin == ValueOrigin::Node ? value.producer.value : -1);
    if (value.tensor) text += fmt::format(" tensor {}{}", this->text(*value.tensor), value.tensor->requiresGrad ? " grad" : "");
    if (value.symbolic) text += " symbol " + this->text(*value.symbolic);
    return text;
  }
  static std::string text(const Node& node) {
    std::string text = node.target;
    for (const NamedArgument& argument : node.inputs)
      text += fmt::format("\n{}={} ", argument.name, argument.value.index()) + of(argument.value);
    text += "\n->";
    for (const ValueId id : node.outputs) text += fmt::format(" {}", id.value);
    return text + (node.outputIsList ? " list" : "");
  }
  static std::string text(const std::vector<ValueId>& ids) { return of(Argument(ids)); }

 private:
  static std::string one(std::int64_t number) { return std::to_string(number); }
  static std::string one(double number) { return fmt::format("{:a}", number); }
  static std::string one(bool flag) { return flag ? "true" : "false"; }
  static std::string one(const std::string& text) { return fmt::format("{}:{}", text.size(), text); }
  static std::string one(ValueId id) { return fmt::format("%{}", id.value); }
  static std::string one(const std::optional<ValueId>& id) { return id ? one(*id) : "none"; }
  static std::string one(const IntOrValue& number) {
    return std::visit([](const auto& n) { return one(n); }, number);
  }
  static std::string one(NoneArg) { return "none"; }
  static std::string one(ScalarTypeArg type) { return std::string(nameOf(type.dtype)); }
  static std::string one(MemoryFormatArg format) { return std::to_string(format.code); }
  static std::string one(LayoutArg layout) { return std::to_string(layout.code); }
  static std::string one(const DeviceArg& device) { return one(device.type); }
  static std::string one(ComplexArg number) { return one(number.real) + "+" + one(number.imaginary) + "i"; }
  static std::string one(GraphArg graph) { return fmt::format("graph {}", graph.index); }
  template <class Element>
  static std::string one(const std::vector<Element>& list) {
    std::string text = "[";
    for (const auto& element : list) {
      text += one(static_cast<const Element&>(element));
      text += ' ';
    }
    return text + "]";
  }
  static std::string of(const Argument& argument) {
    return std::visit([](const auto& value) { return one(value); }, argument);
  }

  std::map<std::string, std::size_t> symbols_;  ///< in order of appearance
};

/// The part of a tensor's line before its type: `parameter blocks.0.weight`.
std::string nameOf(const std::string& line) { return line.substr(0, line.rfind(": ")); }

std::string shapeIn(const std::string& line) {
  const std::size_t colon = line.rfind(": ");
  return colon == std::string::npos ? "" : line.substr(colon + 2);
}

std::string tensorDifference(const std::vector<std::string>& planned, const std::vector<std::string>& found) {
  const auto [p, f] = std::mismatch(planned.begin(), planned.end(), found.begin(), found.end());
  if (p == planned.end() && f == found.end()) return "";
  if (p == planned.end()) return fmt::format("{} is new", nameOf(*f));
  if (f == found.end() || nameOf(*p) != nameOf(*f))
    return fmt::format("{} is {}", nameOf(*p), f == found.end() ? "missing" : fmt::format("missing, but {}", nameOf(*f)));
  return fmt::format("{} is {} and was {}", nameOf(*f), shapeIn(*f), shapeIn(*p));
}

}  // namespace

ModelFingerprint fingerprintOf(const ModelGraph& graph) {
  ModelFingerprint print;
  Writer writer;
  Sha256 all;
  for (const Value& value : graph.values) all.addField(writer.text(value));
  const auto add = [&](std::string_view kind, const std::string& name, ValueId id) {
    const Value& value = graph.value(id);
    print.tensors.push_back(fmt::format("{} {}: {}", kind, name, value.tensor ? writer.text(*value.tensor) : "no tensor"));
    all.addField(print.tensors.back()).addField(fmt::format("{}", id.value));
  };
  for (const StateTensor& parameter : graph.parameters) add("parameter", parameter.name, parameter.value);
  for (const StateTensor& buffer : graph.buffers) add("buffer", buffer.name, buffer.value);
  for (const StateTensor& constant : graph.constants) add("constant", constant.name, constant.value);
  for (const ValueId input : graph.inputs) add("input", graph.value(input).name, input);
  for (const Node& node : graph.nodes) {
    const std::string digest = sha256(Writer::text(node));
    all.add(digest);
    print.operators += hex(digest).substr(0, kNodeDigits);
  }
  for (const Subgraph& subgraph : graph.subgraphs) {
    all.addField(Writer::text(subgraph.inputs)).addField(Writer::text(subgraph.outputs)).addField(std::to_string(subgraph.nodes.size()));
    for (const Node& node : subgraph.nodes) all.addField(Writer::text(node));
  }
  all.addField(Writer::text(graph.outputs));
  for (const std::string& output : graph.outputNames) all.addField(output);
  print.digest = hex(all.finish()).substr(0, kDigits);
  return print;
}

std::string differenceTo(const ModelFingerprint& planned, const ModelGraph& graph) {
  if (planned.digest.empty()) return "";
  const ModelFingerprint found = fingerprintOf(graph);
  if (found.digest == planned.digest) return "";
  if (std::string tensor = tensorDifference(planned.tensors, found.tensors); !tensor.empty()) return tensor;
  if (found.operators.size() != planned.operators.size()) {
    return fmt::format("it has {} operators instead of {}", found.operators.size() / kNodeDigits, planned.operators.size() / kNodeDigits);
  }
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    if (found.operators.compare(kNodeDigits * n, kNodeDigits, planned.operators, kNodeDigits * n, kNodeDigits) == 0) continue;
    const Node& node = graph.nodes[n];
    const std::string module = node.modules.empty() || node.modules.back().path.empty() ? "" : " in " + node.modules.back().path;
    return fmt::format("operator {} ({}{}) differs, or has different arguments", n, node.target, module);
  }
  return "sizes of its values, or its outputs, differ";
}

}  // namespace pw
