#include "simulator/costs/pipedream_graph.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "schedules/printable.h"
#include "schedules/units.h"
#include "simulator/text/json_part.h"

namespace pw {
namespace {

constexpr double kMostNumber = static_cast<double>(kMostSum) / kMostLayers;  ///< of a number, so that all add up
constexpr double kNsPerMs = 1e6;
constexpr std::string_view kSeparator = " -- ", kItem = "__getitem__(";

struct GraphNode {
  std::string id, type;
  Ns forward = 0, backward = 0;
  std::vector<Bytes> outputs;
  Bytes parameters = 0;
  std::optional<std::size_t> item;  ///< of `__getitem__`
  std::vector<std::size_t> inputs;
  std::vector<std::size_t> readers;
};

/// Numbers in names in their own order: node2 before node10.
std::pair<std::size_t, std::string_view> keyOf(const GraphNode& node) { return {node.id.size(), node.id}; }

class Parser {
 public:
  explicit Parser(const std::string& source) : document_{source, "PipeDream graph", "its profiler writes graph.txt"} {}

  std::vector<GraphNode> nodes(std::string_view text) {
    std::vector<std::pair<std::string_view, std::string_view>> edges;
    while (!text.empty()) {
      const std::size_t end = std::min(text.find('\n'), text.size());
      std::string_view line = text.substr(0, end);
      text.remove_prefix(std::min(end + 1, text.size()));
      ++line_;
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (line.empty()) continue;
      line.starts_with('\t') ? edges.push_back(edgeIn(line.substr(1))) : addNode(line);
    }
    if (nodes_.empty()) document_.fail("it has no nodes");
    for (const auto& [from, to] : edges) {
      const std::size_t source = find(from), target = find(to);
      nodes_[target].inputs.push_back(source);
      nodes_[source].readers.push_back(target);
    }
    return std::move(nodes_);
  }

  /// Positions of the nodes, each after those it reads.
  [[nodiscard]] std::vector<std::size_t> inOrder(const std::vector<GraphNode>& nodes) const {
    const auto before = [&](std::size_t a, std::size_t b) { return keyOf(nodes[a]) < keyOf(nodes[b]); };
    std::set<std::size_t, decltype(before)> ready(before);
    std::vector<std::size_t> missing, order;
    for (std::size_t n = 0; n < nodes.size(); ++n) {
      missing.push_back(nodes[n].inputs.size());
      if (missing.back() == 0) ready.insert(n);
    }
    while (!ready.empty()) {
      const std::size_t n = *ready.begin();
      ready.erase(ready.begin());
      order.push_back(n);
      for (const std::size_t reader : nodes[n].readers) {
        if (--missing[reader] == 0) ready.insert(reader);
      }
    }
    const auto left = std::ranges::find_if(missing, [](std::size_t count) { return count > 0; });
    if (left != missing.end())
      document_.fail(fmt::format("node {} is on a cycle, or after one", nodes[static_cast<std::size_t>(left - missing.begin())].id));
    return order;
  }

 private:
  [[noreturn]] void failLine(std::string_view what) const { document_.fail(fmt::format("line {} {}", line_, what)); }

  [[nodiscard]] std::pair<std::string_view, std::string_view> edgeIn(std::string_view line) const {
    const std::size_t at = line.find(kSeparator);
    if (at == std::string_view::npos) failLine("is no edge `<tab>ID -- ID`");
    return {line.substr(0, at), line.substr(at + kSeparator.size())};
  }
  [[nodiscard]] std::size_t find(std::string_view id) const {
    const auto found = places_.find(id);
    if (found == places_.end()) document_.fail(fmt::format("an edge names {:.40}, which is no node", printableLine(id)));
    return found->second;
  }

  void addNode(std::string_view line) {
    const std::size_t first = line.find(kSeparator), last = line.rfind(" -- forward_compute_time=");
    if (first == std::string_view::npos || last == std::string_view::npos || last < first)
      failLine("is no node `ID -- operator -- forward_compute_time=…`");
    if (nodes_.size() == kMostLayers) document_.fail(fmt::format("it has more than {} nodes", kMostLayers));
    GraphNode node;
    node.id = line.substr(0, first);
    const std::string_view op =
        last == first ? std::string_view() : line.substr(first + kSeparator.size(), last - first - kSeparator.size());
    node.type = op.substr(0, op.find('('));
    if (node.id.empty() || printableLine(node.id + node.type) != node.id + node.type) failLine("has a node without a readable name");
    if (op.starts_with(kItem)) {
      std::size_t item = 0;
      if (std::from_chars(op.data() + kItem.size(), op.data() + op.size(), item).ec == std::errc()) node.item = item;
    }
    const std::string_view costs = line.substr(last + kSeparator.size());
    node.forward = Ns(one(costs, "forward_compute_time", kNsPerMs));
    node.backward = Ns(one(costs, "backward_compute_time", kNsPerMs));
    for (const std::int64_t bytes : numbers(costs, "activation_size", 1)) node.outputs.emplace_back(bytes);
    node.parameters = Bytes(one(costs, "parameter_size", 1));
    if (!places_.emplace(node.id, nodes_.size()).second) failLine("repeats a node");
    nodes_.push_back(std::move(node));
  }

  [[nodiscard]] std::int64_t one(std::string_view costs, std::string_view key, double unit) const {
    const std::vector<std::int64_t> list = numbers(costs, key, unit);
    if (list.size() != 1) failLine(fmt::format("has a list as {}", key));
    return list.front();
  }

  /// `key=1.5`, or `key=[1.0; 2.0]`, in this unit.
  [[nodiscard]] std::vector<std::int64_t> numbers(std::string_view costs, std::string_view key, double unit) const {
    std::size_t at = costs.find(fmt::format("{}=", key));
    if (at == std::string_view::npos) failLine(fmt::format("lacks {}", key));
    at += key.size() + 1;
    const bool list = costs.substr(at, 1) == "[";
    if (list) ++at;
    std::vector<std::int64_t> found;
    const char *position = costs.data() + at, *const end = costs.data() + costs.size();
    while (true) {
      double number = 0;
      const auto [next, problem] = std::from_chars(position, end, number);
      if (problem != std::errc() || !(number >= 0) || number * unit > kMostNumber) failLine(fmt::format("has no usable number as {}", key));
      found.push_back(std::llround(number * unit));
      position = next;
      if (!list || (position != end && *position == ']')) return found;
      if (end - position < 2 || position[0] != ';' || position[1] != ' ') failLine(fmt::format("has a list that does not end as {}", key));
      position += 2;
    }
  }

  JsonDocument document_;
  std::size_t line_ = 0;
  std::vector<GraphNode> nodes_;
  std::map<std::string, std::size_t, std::less<>> places_;
};

/// A tensor: where it is made and last read, as positions in the order.
struct Tensor {
  Bytes bytes = 0;
  std::size_t made = 0, lastRead = 0;
};

/// The tensors of every node in this order, and how long they live.
class Liveness {
 public:
  Liveness(const std::vector<GraphNode>& nodes, const std::vector<std::size_t>& order) : of_(nodes.size()), isItem_(nodes.size(), false) {
    for (std::size_t k = 0; k < order.size(); ++k) {
      const GraphNode& node = nodes[order[k]];
      std::vector<std::size_t>& own = of_[order[k]];
      if (node.item && node.inputs.size() == 1 && of_[node.inputs[0]].size() > 1 && *node.item < of_[node.inputs[0]].size()) {
        isItem_[order[k]] = true;
        own = {of_[node.inputs[0]][*node.item]};
        tensors_[own[0]].lastRead = k;
        continue;
      }
      for (const std::size_t input : node.inputs) {
        for (const std::size_t read : of_[input]) tensors_[read].lastRead = k;
      }
      for (const Bytes bytes : node.outputs) {
        own.push_back(tensors_.size());
        tensors_.push_back({bytes, k, k});
      }
    }
  }

  /// Bytes that cross a cut after each position.
  [[nodiscard]] std::vector<Bytes> crossing() const {
    std::vector<Bytes> change(of_.size() + 1, 0);
    for (const Tensor& tensor : tensors_) {
      change[tensor.made] += tensor.bytes;
      change[tensor.lastRead] -= tensor.bytes;
    }
    for (std::size_t k = 1; k < change.size(); ++k) change[k] += change[k - 1];
    return change;
  }
  /// Whether the node only shows a tensor of another.
  [[nodiscard]] bool isItem(std::size_t node) const { return isItem_[node]; }

 private:
  std::vector<std::vector<std::size_t>> of_;  ///< by node
  std::vector<bool> isItem_;                  ///< by node
  std::vector<Tensor> tensors_;
};

}  // namespace

LayerTable parsePipeDream(std::string_view text, const std::string& source) {
  Parser parser(source);
  const std::vector<GraphNode> nodes = parser.nodes(text);
  const std::vector<std::size_t> order = parser.inOrder(nodes);
  const Liveness liveness(nodes, order);
  const std::vector<Bytes> crossing = liveness.crossing();
  LayerTable table;
  table.name = printableLine(std::filesystem::path(source).stem().stem().string());
  for (std::size_t k = 0; k < order.size(); ++k) {
    const GraphNode& node = nodes[order[k]];
    Layer layer;
    layer.name = node.type.empty() ? node.id : fmt::format("{}.{}", node.id, node.type);
    layer.forward = node.forward;
    layer.input = node.backward / 2;
    layer.weight = node.backward - layer.input;
    layer.parameters = node.parameters;
    for (const Bytes bytes : node.outputs) layer.activations += liveness.isItem(order[k]) ? 0 : bytes;
    layer.afterInput = layer.activations;
    layer.output = crossing[k];
    table.layers.push_back(std::move(layer));
  }
  return table;
}

}  // namespace pw
