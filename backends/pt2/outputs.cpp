#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_set>
#include <utility>

#include "backends/pt2/graph.h"
#include "backends/pt2/outputs.h"

namespace pw::pt2 {
namespace {

constexpr int kDepthLimit = 16;
constexpr std::size_t kKeyLimit = 256;  ///< with the depth, keeps names of a hostile archive at 4 KiB each

/// The member of that name, or nullptr where there is none or `json` is not an object.
const Json* find(const Json& json, const char* key) {
  if (!json.is_object()) {
    return nullptr;
  }
  const auto found = json.find(key);
  return found == json.end() ? nullptr : &*found;
}

/// `["loss", "logits"]`, if it is a list of that many texts.
std::optional<std::vector<std::string>> texts(const Json& list, std::size_t count) {
  if (!list.is_array() || list.size() != count) {
    return std::nullopt;
  }
  std::vector<std::string> result;
  for (const Json& element : list) {
    const auto* text = element.get_ptr<const Json::string_t*>();
    if (text == nullptr || text->size() > kKeyLimit) {
      return std::nullopt;
    }
    result.push_back(*text);
  }
  return result;
}

/// Torch's treespec (torch/utils/_pytree.py) is `{"type", "context", "children_spec"}` per level. The context of a dict, and of a class
/// such as those of transformers, is its keys as JSON text; of a dataclass two lists: the keys with a value and those that are None.
class KeyReader {
 public:
  explicit KeyReader(std::size_t outputs) : limit_(outputs) {}

  /// False for a form that is not known.
  bool read(const Json& spec, const std::string& path, int depth) {
    const Json* children = find(spec, "children_spec");
    const Json* type = find(spec, "type");
    if (children == nullptr || type == nullptr || !children->is_array() || depth > kDepthLimit) {
      return false;
    }
    if (type->is_null()) {
      keys_.push_back(path);
      return keys_.size() <= limit_;
    }
    const auto keys = keysOf(spec, *type, children->size());
    for (std::size_t i = 0; keys && i < children->size(); ++i) {
      if (!read((*children)[i], path.empty() ? (*keys)[i] : path + "." + (*keys)[i], depth + 1)) {
        return false;
      }
    }
    return keys.has_value();
  }

  std::vector<std::string> take() { return std::move(keys_); }

 private:
  static std::optional<std::vector<std::string>> keysOf(const Json& spec, const Json& type, std::size_t count) {
    if (type == "builtins.tuple" || type == "builtins.list") {
      std::vector<std::string> numbers;
      for (std::size_t i = 0; i < count; ++i) {
        numbers.push_back(std::to_string(i));
      }
      return numbers;
    }
    const Json* context = find(spec, "context");
    const auto* text = context == nullptr ? nullptr : context->get_ptr<const Json::string_t*>();
    const std::optional<Json> parsed = text == nullptr ? std::nullopt : tryParseJson(*text);
    if (!parsed || !parsed->is_array()) {
      return std::nullopt;
    }
    if (auto keys = texts(*parsed, count)) {
      return keys;
    }
    return parsed->empty() ? std::nullopt : texts(parsed->front(), count);
  }

  std::size_t limit_;
  std::vector<std::string> keys_;
};

/// The treespec of what the whole model returns; nothing where the archive does not have it.
std::optional<Json> outputSpec(const Json& graphModule) {
  const Json* calls = find(graphModule, "module_call_graph");
  if (calls == nullptr || !calls->is_array() || calls->empty()) {
    return std::nullopt;
  }
  const Json* signature = find(calls->front(), "signature");
  const Json* spec = signature == nullptr ? nullptr : find(*signature, "out_spec");
  const auto* text = spec == nullptr ? nullptr : spec->get_ptr<const Json::string_t*>();
  return text == nullptr ? std::nullopt : tryParseJson(*text);
}

}  // namespace

std::vector<std::string> readOutputKeys(const Json& graphModule, std::size_t outputs) {
  const std::optional<Json> versioned = outputSpec(graphModule);  // [version, treespec]
  if (!versioned || !versioned->is_array() || versioned->size() != 2) {
    return {};
  }
  const Json& spec = versioned->back();
  const Json* type = find(spec, "type");
  if (type == nullptr || *type == "builtins.tuple" || *type == "builtins.list") {
    return {};  // positions are no names
  }
  KeyReader reader(outputs);
  if (!reader.read(spec, "", 0)) {
    return {};
  }
  std::vector<std::string> keys = reader.take();
  const std::unordered_set<std::string> different(keys.begin(), keys.end());
  return keys.size() == outputs && different.size() == outputs ? keys : std::vector<std::string>();
}

}  // namespace pw::pt2
