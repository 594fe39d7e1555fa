#include <fmt/format.h>
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "schedules/error.h"
#include "simulator/model/join.h"
#include "simulator/model/model_graph.h"
#include "simulator/model/symbolic.h"

namespace pw {
namespace {

/// By symbol of a part: the expression, in symbols of the parts before it, that it stands for.
using Substitution = std::map<std::string, std::string>;

/// Names used by more than one part.
struct SharedNames {
  std::set<std::string> values;
  std::set<std::string> states;
};

void addNames(const std::set<std::string>& names, std::set<std::string>& seen, std::set<std::string>& shared) {
  for (const std::string& name : names) {
    if (!seen.insert(name).second) {
      shared.insert(name);
    }
  }
}

SharedNames findSharedNames(const std::vector<ModelGraph>& parts) {
  SharedNames shared;
  std::set<std::string> seenValues;
  std::set<std::string> seenStates;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const ModelGraph& part = parts[i];
    std::set<std::string> values;  // a part's inputs after the first are the outputs of the part before it, under its names
    for (std::size_t v = 0; v < part.values.size(); ++v) {
      if (i == 0 || std::find(part.inputs.begin(), part.inputs.end(), ValueId(v)) == part.inputs.end()) {
        values.insert(part.values[v].name);
      }
    }
    std::set<std::string> states;
    for (const auto* list : {&part.parameters, &part.buffers, &part.constants}) {
      for (const StateTensor& state : *list) {
        states.insert(state.name);
      }
    }
    for (const auto& [alias, target] : part.tiedAliases) {
      states.insert(alias);
    }
    addNames(values, seenValues, shared.values);
    addNames(states, seenStates, shared.states);
  }
  shared.values.erase("");
  return shared;
}

/// Appends one part at a time to a growing graph.
class Joiner {
 public:
  explicit Joiner(SharedNames shared) : shared_(std::move(shared)) {}

  void append(const ModelGraph& part, std::size_t index) {
    part_ = &part;
    index_ = index;
    symbols_.clear();
    valueOf_.assign(part.values.size(), ValueId());
    nodeBase_ = joined_.nodes.size();
    subgraphBase_ = joined_.subgraphs.size();
    fileBase_ = joined_.files.size();
    if (index > 0) {
      exported_ = bindBatch(joined_, exportedBatch(joined_));
      connect();
      if (nodeBase_ > 0 && (joined_.splitMarkers.empty() || joined_.splitMarkers.back().index() != nodeBase_)) {
        joined_.splitMarkers.push_back(NodeId(nodeBase_));
      }
    }
    copyValues();
    for (const Subgraph& subgraph : part.subgraphs) {
      Subgraph copy{mapped(subgraph.inputs), mapped(subgraph.outputs), {}};
      for (const Node& node : subgraph.nodes) {
        copy.nodes.push_back(copyNode(node));
      }
      joined_.subgraphs.push_back(std::move(copy));
    }
    for (const Node& node : part.nodes) {
      joined_.nodes.push_back(copyNode(node));
    }
    for (const NodeId marker : part.splitMarkers) {
      joined_.splitMarkers.push_back(NodeId(marker.index() + nodeBase_));
    }
    copyStates(part.parameters, joined_.parameters);
    copyStates(part.buffers, joined_.buffers);
    copyStates(part.constants, joined_.constants);
    for (const auto& [alias, target] : part.tiedAliases) {
      joined_.tiedAliases.emplace(stateName(alias), stateName(target));
    }
    if (index == 0) {
      joined_.inputs = mapped(part.inputs);
    }
    joined_.outputs = mapped(part.outputs);
    nameOutputs();
    joined_.files.insert(joined_.files.end(), part.files.begin(), part.files.end());
    joined_.name += (index == 0 ? "" : "+") + part.name;
  }

  [[nodiscard]] ModelGraph take() { return std::move(joined_); }

 private:
  [[nodiscard]] std::string border(std::size_t position) const {
    return fmt::format("output {} of part {} does not fit input {} of part {} ({})", position, index_ - 1, position, index_, part_->name);
  }

  /// Makes the outputs so far the inputs of the part, and finds what the part's symbols stand for.
  void connect() {
    const std::vector<ValueId>& outputs = joined_.outputs;
    if (outputs.size() != part_->inputs.size()) {
      throw UsageError(
          fmt::format("part {} gives {} outputs, but part {} ({}) takes {} inputs; export parts so that each takes exactly the outputs of "
                      "the previous one",
                      index_ - 1, outputs.size(), index_, part_->name, part_->inputs.size()));
    }
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      valueOf_[part_->inputs[i].index()] = outputs[i];
      checkType(i);
    }
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const Value& input = part_->value(part_->inputs[i]);
      for (std::size_t d = 0; input.tensor && d < input.tensor->sizes.size(); ++d) {
        bindSymbol(input.tensor->sizes[d], joined_.value(outputs[i]).tensor->sizes[d]);
      }
    }
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      checkSizes(i);
    }
  }

  /// Keys stay; an output without one goes by its name in the joined trace.
  void nameOutputs() {
    joined_.outputNames = part_->outputNames;
    for (std::size_t i = 0; i < part_->outputs.size(); ++i) {
      if (joined_.outputNames[i] == part_->value(part_->outputs[i]).name) {
        joined_.outputNames[i] = joined_.value(joined_.outputs[i]).name;
      }
    }
  }

  void checkType(std::size_t position) const {
    const Value& input = part_->value(part_->inputs[position]);
    const Value& output = joined_.value(joined_.outputs[position]);
    if (!input.tensor || !output.tensor) {
      throw UsageError(fmt::format("{}: only tensors can pass between parts", border(position)));
    }
    if (input.tensor->dtype != output.tensor->dtype) {
      throw UsageError(
          fmt::format("{}: it is {}, expected {}", border(position), nameOf(output.tensor->dtype), nameOf(input.tensor->dtype)));
    }
    if (input.tensor->sizes.size() != output.tensor->sizes.size()) {
      throw UsageError(
          fmt::format("{}: it has {} dimensions, expected {}", border(position), output.tensor->sizes.size(), input.tensor->sizes.size()));
    }
  }

  /// A plain symbol of the part stands for what the part before gives there; the first place decides.
  void bindSymbol(const SymbolicInt& inner, const SymbolicInt& outer) {
    if (inner.expression.empty()) {
      return;
    }
    const std::optional<LinearForm> form = linearForm(inner);
    if (form && form->factor == 1 && form->constant == 0) {
      symbols_.try_emplace(form->symbol, outer.expression.empty() ? fmt::format("Integer({})", outer.hint) : outer.expression);
    }
  }

  /// Sizes must agree at the exported batch and, where the batch is free, at others too.
  void checkSizes(std::size_t position) const {
    const TensorMeta& input = *part_->value(part_->inputs[position]).tensor;
    const TensorMeta& output = *joined_.value(joined_.outputs[position]).tensor;
    const std::int64_t exported = exportedBatch(joined_);
    std::vector<std::int64_t> batches{exported};
    if (!batchSymbol(joined_).empty()) {
      batches.push_back(2 * exported);
      batches.push_back(3 * exported);
    }
    for (const std::int64_t batch : batches) {
      const Bindings bindings = bindBatch(joined_, batch);
      for (std::size_t d = 0; d < input.sizes.size(); ++d) {
        const std::int64_t given = evaluate(output.sizes[d], bindings);
        const std::int64_t wanted = evaluate(translate(input.sizes[d]), bindings);
        if (given != wanted) {
          throw UsageError(
              fmt::format("{}: dimension {} is {} for a batch of {}, expected {}; export all parts with the same sizes and the "
                          "same dynamic batch dimension",
                          border(position), d, given, batch, wanted));
        }
      }
    }
  }

  /// The same number in the joined graph's symbols. The hint becomes its value in the joined graph.
  [[nodiscard]] SymbolicInt translate(const SymbolicInt& number) const {
    if (number.expression.empty() || index_ == 0) {
      return number;
    }
    bool isKnown = true;
    SymbolicInt result = number;
    result.expression = mapSymbols(number.expression, [&](const std::string& symbol, std::string_view whole) {
      const auto found = symbols_.find(symbol);
      if (found != symbols_.end()) {
        return found->second;
      }
      isKnown = false;  // depends on data: keep it apart from a symbol of the same name in another part
      return fmt::format("Symbol('part{}.{}'{}", index_, symbol, whole.substr(whole.find(symbol) + symbol.size() + 1));
    });
    if (isKnown) {
      result.hint = evaluate(result, exported_);
    }
    return result;
  }

  void copyValues() {
    for (std::size_t v = 0; v < part_->values.size(); ++v) {
      const bool isJoined = index_ > 0 && std::find(part_->inputs.begin(), part_->inputs.end(), ValueId(v)) != part_->inputs.end();
      if (isJoined) {
        continue;
      }
      Value value = part_->values[v];
      if (shared_.values.contains(value.name)) {
        value.name = fmt::format("part{}.{}", index_, value.name);
      }
      value.producer = value.origin == ValueOrigin::Node ? NodeId(value.producer.index() + nodeBase_) : value.producer;
      if (value.tensor) {
        for (SymbolicInt& size : value.tensor->sizes) {
          size = translate(size);
        }
      }
      if (value.symbolic) {
        value.symbolic = translate(*value.symbolic);
      }
      valueOf_[v] = ValueId(joined_.values.size());
      joined_.values.push_back(std::move(value));
    }
  }

  [[nodiscard]] ValueId mapped(ValueId id) const { return valueOf_[id.index()]; }

  [[nodiscard]] std::vector<ValueId> mapped(const std::vector<ValueId>& ids) const {
    std::vector<ValueId> result;
    for (const ValueId id : ids) {
      result.push_back(mapped(id));
    }
    return result;
  }

  /// Rewrites the value ids and sub-graph indices of an argument.
  struct ArgumentMapper {
    const Joiner& joiner;

    void operator()(ValueId& id) const { id = joiner.mapped(id); }
    void operator()(std::vector<ValueId>& ids) const { ids = joiner.mapped(ids); }
    void operator()(std::vector<std::optional<ValueId>>& ids) const {
      for (std::optional<ValueId>& id : ids) {
        id = id ? std::optional(joiner.mapped(*id)) : id;
      }
    }
    void operator()(std::vector<IntOrValue>& elements) const {
      for (IntOrValue& element : elements) {
        if (auto* id = std::get_if<ValueId>(&element)) {
          *id = joiner.mapped(*id);
        }
      }
    }
    void operator()(GraphArg& argument) const { argument.index += joiner.subgraphBase_; }
    template <class Other>
    void operator()(Other&) const {}
  };

  [[nodiscard]] Node copyNode(const Node& node) const {
    Node copy = node;
    for (NamedArgument& input : copy.inputs) {
      std::visit(ArgumentMapper{*this}, input.value);
    }
    copy.outputs = mapped(node.outputs);
    return copy;
  }

  [[nodiscard]] std::string stateName(const std::string& name) const {
    return shared_.states.contains(name) ? fmt::format("part{}.{}", index_, name) : name;
  }

  void copyStates(const std::vector<StateTensor>& from, std::vector<StateTensor>& to) const {
    for (StateTensor state : from) {
      state.name = stateName(state.name);
      state.value = mapped(state.value);
      if (state.stored) {
        state.stored->file += fileBase_;
        state.storage =
            fmt::format("{}{}", state.stored->file, state.storage.substr(std::min(state.storage.find(':'), state.storage.size())));
      }
      to.push_back(std::move(state));
    }
  }

  SharedNames shared_;
  ModelGraph joined_;
  const ModelGraph* part_ = nullptr;
  std::size_t index_ = 0;
  Substitution symbols_;
  Bindings exported_;             ///< values of the joined graph's symbols at export
  std::vector<ValueId> valueOf_;  ///< by value of the part: its number in the joined graph
  std::size_t nodeBase_ = 0;
  std::size_t subgraphBase_ = 0;
  std::size_t fileBase_ = 0;
};

}  // namespace

ModelGraph joinGraphs(const std::vector<ModelGraph>& parts) {
  if (parts.empty()) {
    throw UsageError("there are no parts to join; give at least one archive");
  }
  Joiner joiner(findSharedNames(parts));
  for (std::size_t i = 0; i < parts.size(); ++i) {
    joiner.append(parts[i], i);
  }
  return joiner.take();
}

}  // namespace pw
