#include "app/gui/model/parts/call_tree.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <utility>

#include "simulator/model/graph_facts.h"
#include "simulator/step/compile.h"

namespace pw::gui {
namespace {

constexpr std::size_t kNamedOperators = 4;

/// The modules around a node, outermost first, without the root and each once.
std::vector<const ModuleFrame*> modulesAround(const Node& node) {
  std::vector<const ModuleFrame*> list;
  for (const ModuleFrame& frame : node.modules) {
    const bool isNew = std::none_of(list.begin(), list.end(), [&](const ModuleFrame* f) { return f->path == frame.path; });
    if (!frame.path.empty() && isNew) list.push_back(&frame);
  }
  return list;
}

std::string labelOf(const std::string& path, const std::string& around) {
  const bool inside =
      !around.empty() && path.size() > around.size() + 1 && path.compare(0, around.size(), around) == 0 && path[around.size()] == '.';
  return inside ? path.substr(around.size() + 1) : path;
}

class Builder {
 public:
  Builder(const ModelGraph& graph, const std::vector<NodeId>& cuts) : graph_(graph), cuts_(cuts) {
    for (const Node& node : graph.nodes) around_.push_back(modulesAround(node));
    tree_.rowOfNode.assign(graph.nodes.size(), 0);
  }

  CallTree build() {
    CallRow root;
    root.label = graph_.name;
    root.endNode = NodeId(graph_.nodes.size());
    for (const Node& node : graph_.nodes) {
      for (const ModuleFrame& frame : node.modules) {
        if (frame.path.empty()) root.className = frame.className;
      }
      if (!root.className.empty()) break;
    }
    const int row = add(std::move(root));
    fill(row, 0);
    tree_.rows[0].end = tree_.size();
    return std::move(tree_);
  }

 private:
  int add(CallRow row) {
    const int index = tree_.size();
    if (row.parent >= 0) {
      auto& siblings = tree_.children[static_cast<std::size_t>(row.parent)];
      row.place = static_cast<int>(siblings.size());
      row.depth = tree_.row(row.parent).depth + 1;
      siblings.push_back(index);
    }
    for (std::size_t n = row.firstNode.index(); n < row.endNode.index(); ++n) tree_.rowOfNode[n] = index;
    tree_.rows.push_back(std::move(row));
    tree_.children.emplace_back();
    return index;
  }

  [[nodiscard]] const ModuleFrame* frameAt(std::size_t node, std::size_t level) const {
    return level < around_[node].size() ? around_[node][level] : nullptr;
  }

  /// Nodes from `from` on that are in the same call, or outside calls, at this level.
  [[nodiscard]] std::size_t sameCallUntil(std::size_t from, std::size_t end, std::size_t level) const {
    const ModuleFrame* frame = frameAt(from, level);
    std::size_t n = from + 1;
    for (; n < end; ++n) {
      const ModuleFrame* other = frameAt(n, level);
      if ((frame == nullptr) != (other == nullptr) || (frame != nullptr && frame->path != other->path)) break;
    }
    return n;
  }

  [[nodiscard]] std::size_t nextCut(std::size_t after) const {
    const auto cut = std::upper_bound(cuts_.begin(), cuts_.end(), NodeId(after));
    return cut == cuts_.end() ? graph_.nodes.size() : cut->index();
  }

  /// The rows inside a row; `level`: modules around what is directly in it.
  void fill(int row, std::size_t level) {
    const std::size_t begin = tree_.row(row).firstNode.index(), end = tree_.row(row).endNode.index();
    const bool isLeaf = begin == end || (frameAt(begin, level) == nullptr && sameCallUntil(begin, end, level) == end);
    if (isLeaf && nextCut(begin) >= end) return;
    for (std::size_t n = begin; n < end;) {
      const std::size_t until = sameCallUntil(n, end, level);
      if (const ModuleFrame* frame = frameAt(n, level)) {
        addCall(*frame, row, n, until, level);
      } else {
        for (std::size_t from = n; from < until;) {
          const std::size_t to = std::min(until, nextCut(from));
          addOperators(row, from, to);
          from = to;
        }
      }
      n = until;
    }
  }

  void addCall(const ModuleFrame& frame, int parent, std::size_t from, std::size_t to, std::size_t level) {
    CallRow call;
    call.path = frame.path;
    call.label = labelOf(frame.path, tree_.row(parent).path);
    call.className = frame.className;
    call.call = calls_[frame.path]++;
    call.parent = parent;
    call.firstNode = NodeId(from);
    call.endNode = NodeId(to);
    const int row = add(std::move(call));
    fill(row, level + 1);
    tree_.rows[static_cast<std::size_t>(row)].end = tree_.size();
  }

  void addOperators(int parent, std::size_t from, std::size_t to) {
    CallRow run;
    run.path = tree_.row(parent).path;
    for (std::size_t n = from; n < to && n < from + kNamedOperators; ++n)
      run.label += (n == from ? "" : " · ") + operatorName(graph_.nodes[n]);
    if (to - from > kNamedOperators) run.label += " · …";
    run.isModule = false;
    run.parent = parent;
    run.firstNode = NodeId(from);
    run.endNode = NodeId(to);
    const int row = add(std::move(run));
    tree_.rows[static_cast<std::size_t>(row)].end = tree_.size();
  }

  const ModelGraph& graph_;
  const std::vector<NodeId>& cuts_;
  std::vector<std::vector<const ModuleFrame*>> around_;  // by node
  std::map<std::string, int> calls_;
  CallTree tree_;
};

/// Counts each storage once in every row around a node that reads it.
void countParameters(const ModelGraph& graph, CallTree& tree) {
  const std::vector<int> parameterOf = indexByValue(graph, graph.parameters);
  std::map<std::string, int> numbers;
  std::vector<int> storage;
  for (const StateTensor& p : graph.parameters)
    storage.push_back(numbers.emplace(storageOf(p), static_cast<int>(numbers.size())).first->second);
  std::vector<std::vector<int>> rowsOf(numbers.size());  // that count a storage
  const auto count = [&](int row, std::size_t parameter) {
    const auto& meta = graph.value(graph.parameters[parameter].value).tensor;
    if (!meta) return;
    auto& counting = rowsOf[static_cast<std::size_t>(storage[parameter])];
    for (; row >= 0; row = tree.row(row).parent) {
      if (std::find(counting.begin(), counting.end(), row) != counting.end()) return;  // and so all rows around
      counting.push_back(row);
      CallRow& counted = tree.rows[static_cast<std::size_t>(row)];
      std::int64_t elements = 1;
      for (const SymbolicInt& size : meta->sizes) elements *= size.hint;
      counted.parameters += elements;
      counted.parameterBytes += elements * bytesPerElement(meta->dtype);
    }
  };
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    for (const ValueId v : readsOf(graph.nodes[n])) {
      if (parameterOf[v.index()] >= 0) count(tree.rowOfNode[n], static_cast<std::size_t>(parameterOf[v.index()]));
    }
  }
  for (std::size_t p = 0; p < graph.parameters.size(); ++p) count(0, p);
}

bool isDigit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

char lower(char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); }

bool endsInNumber(const std::string& path) {
  const std::string number = path.substr(path.rfind('.') + 1);
  return !number.empty() && std::all_of(number.begin(), number.end(), isDigit);
}

}  // namespace

RowKey keyOf(const CallRow& row) {
  return {row.isModule ? row.path : row.path + ":" + row.label, row.isModule ? row.call : row.firstNode.value};
}

CallTree callTree(const ModelGraph& graph, const std::vector<NodeId>& cuts) {
  CallTree tree = Builder(graph, cuts).build();
  countParameters(graph, tree);
  return tree;
}

bool rowsBeginAt(const CallTree& tree, const std::vector<NodeId>& begins) {
  return std::all_of(begins.begin(), begins.end(), [&](NodeId node) {
    if (node.index() >= tree.rowOfNode.size()) return true;
    return tree.row(tree.rowOfNode[node.index()]).firstNode == node;
  });
}

void setCosts(CallTree& tree, const Profile* profile) {
  const bool fits = profile != nullptr && profile->nodes.size() == tree.rowOfNode.size();
  const CostSums sums(fits ? *profile : Profile{});
  for (CallRow& row : tree.rows) {
    const NodeCost cost = fits ? sums.range(row.firstNode, row.endNode) : NodeCost{};
    row.forward = cost.forward;
    row.backward = cost.backward;
    row.saved = std::max<Bytes>(0, cost.saved);
  }
}

std::vector<bool> layerRows(const CallTree& tree) {
  std::vector<bool> layers(tree.rows.size(), false);
  const auto isLayer = [&](int r, int rule) {
    const CallRow& row = tree.row(r);
    if (!row.isModule || row.path.empty() || (rule < 2 && row.end == r + 1)) return false;
    return rule == 1 ? isDigit(row.path.back()) : endsInNumber(row.path);
  };
  bool any = false;
  for (int rule = 0; rule < 3 && !any; ++rule) {
    for (int r = 1; r < tree.size();) {
      const bool found = isLayer(r, rule);
      if (found) layers[static_cast<std::size_t>(r)] = any = true;
      r = found ? tree.row(r).end : r + 1;
    }
  }
  return layers;
}

std::vector<int> openAtFirst(const CallTree& tree) {
  const BarScale scale = barScale(tree);
  std::vector<int> open;
  for (int r = 0; r < tree.size(); ++r) {
    if (scale.isAround[static_cast<std::size_t>(r)]) open.push_back(r);
  }
  return open;
}

BarScale barScale(const CallTree& tree) {
  BarScale scale;
  scale.isAround.assign(tree.rows.size(), false);
  if (tree.rows.empty()) return scale;
  scale.isAround[0] = tree.rows.size() > 1;
  const std::vector<bool> layers = layerRows(tree);
  for (int r = 0; r < tree.size(); ++r) {
    if (!layers[static_cast<std::size_t>(r)]) continue;
    for (int around = tree.row(r).parent; around >= 0; around = tree.row(around).parent)
      scale.isAround[static_cast<std::size_t>(around)] = true;
  }
  for (int r = 0; r < tree.size(); ++r) {
    if (scale.isAround[static_cast<std::size_t>(r)]) continue;
    const CallRow& row = tree.row(r);
    scale.time = std::max({scale.time, row.forward, row.backward});
    scale.parameters = std::max(scale.parameters, row.parameters);
    scale.saved = std::max(scale.saved, row.saved);
  }
  return scale;
}

std::vector<int> findRows(const CallTree& tree, std::string_view text) {
  std::vector<int> found;
  if (text.empty()) return found;
  const auto same = [](char a, char b) { return lower(a) == lower(b); };
  const auto contains = [&](const std::string& where) {
    return std::search(where.begin(), where.end(), text.begin(), text.end(), same) != where.end();
  };
  for (int r = 0; r < tree.size(); ++r) {
    const CallRow& row = tree.row(r);
    const auto last = std::find_end(row.path.begin(), row.path.end(), text.begin(), text.end(), same);
    // A path matches only in its own part: otherwise everything inside a module would match with it.
    const bool inPath = row.isModule && last != row.path.end() &&
                        static_cast<std::size_t>(last - row.path.begin()) + text.size() + row.label.size() > row.path.size();
    if (inPath || contains(row.label) || contains(row.className)) found.push_back(r);
  }
  return found;
}

}  // namespace pw::gui
