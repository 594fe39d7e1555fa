#pragma once

// Internal to the archive reader: operator arguments and value descriptions.

#include <string>
#include <unordered_map>

#include "backends/pt2/json.h"
#include "simulator/model/model_graph.h"

namespace pw::pt2 {

/// The names defined so far in one graph or sub-graph.
struct Scope {
  const Json& graph;
  std::unordered_map<std::string, ValueId> names{};
  std::unordered_map<std::string, std::string> refused{};  ///< names that must not be read → why
};

/// Resolves a name to its value, and records that it is read.
class NameResolver {
 public:
  virtual ValueId resolve(const Scope& scope, const std::string& name, const std::string& where) = 0;

 protected:
  ~NameResolver() = default;
};

/// An operator argument of any kind but `as_graph`. Throws UsageError for kinds no Argument can hold.
[[nodiscard]] Argument readArgument(const Tagged& argument, const Scope& scope, NameResolver& resolver, const std::string& where);

/// What the graph's tables say about a value that an input or output names. `as_none` and results nobody uses have
/// neither name nor type; a literal number has a symbolic value without expression.
[[nodiscard]] Value describe(const Scope& scope, const Tagged& argument, ValueOrigin origin, const std::string& where);

}  // namespace pw::pt2
