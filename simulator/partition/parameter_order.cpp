#include "simulator/partition/parameter_order.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <utility>

namespace pw {
namespace {

/// The name that the trace gives the parameter `blocks.0.weight`: `p_blocks_0_weight`.
std::string traceName(const std::string& name) {
  std::string made = "p_";
  for (const char c : name) made += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return made;
}

}  // namespace

std::vector<std::string> parameterOrder(const ModelGraph& graph) {
  std::map<std::string, std::pair<ValueId, std::string>> first;  // by storage: the first place, and the name it is read by
  std::map<std::string, std::string> storages;                   // by name
  std::set<ValueId> known;
  for (const StateTensor& parameter : graph.parameters) {
    storages[parameter.name] = storageOf(parameter);
    known.insert(parameter.value);
    const auto [found, isNew] = first.emplace(storageOf(parameter), std::pair(parameter.value, parameter.name));
    if (!isNew) found->second.first = std::min(found->second.first, parameter.value);
  }
  for (const auto& [alias, name] : graph.tiedAliases) {
    const auto storage = storages.find(name);
    for (std::size_t i = 0; storage != storages.end() && i < graph.values.size(); ++i) {
      const ValueId value(static_cast<std::int32_t>(i));
      if (graph.values[i].origin != ValueOrigin::Parameter || known.contains(value) || graph.values[i].name != traceName(alias)) continue;
      ValueId& place = first.at(storage->second).first;
      place = std::min(place, value);
    }
  }
  std::vector<std::pair<ValueId, std::string>> ordered;
  for (const auto& [storage, place] : first) ordered.push_back(place);
  std::ranges::sort(ordered);
  std::vector<std::string> names;
  for (auto& [value, name] : ordered) names.push_back(std::move(name));
  return names;
}

std::vector<const StateTensor*> unreadState(const ModelGraph& graph, const Partition& partition) {
  std::set<std::string> parameters, buffers;
  for (const StageSpec& stage : partition.stages) {
    for (const std::size_t p : stage.parameters) parameters.insert(storageOf(graph.parameters[p]));
    for (const std::size_t b : stage.buffers) buffers.insert(graph.buffers[b].name);
  }
  std::vector<const StateTensor*> unread;
  for (const StateTensor& parameter : graph.parameters) {
    if (parameters.insert(storageOf(parameter)).second) unread.push_back(&parameter);
  }
  for (const StateTensor& buffer : graph.buffers) {
    if (buffer.persistent && !buffers.contains(buffer.name)) unread.push_back(&buffer);
  }
  return unread;
}

}  // namespace pw
