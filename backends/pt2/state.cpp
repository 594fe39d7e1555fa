#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_map>

#include "backends/pt2/graph.h"
#include "backends/pt2/state.h"
#include "schedules/error.h"

namespace pw::pt2 {
namespace {

/// What the two config entries say about one name.
struct Payload {
  const Json* description = nullptr;
  std::string_view folder;  ///< `weights` or `constants`
};

/// The weights and constants configurations. Pickled payloads are refused only when they are requested.
class Payloads {
 public:
  Payloads(const Archive& archive, const std::map<std::string, std::string>& texts)
      : archive_(archive), weights_(load(texts, kWeightsEntry)), constants_(load(texts, kConstantsEntry)) {
    index(weights_, "weights", kWeightsEntry);
    index(constants_, "constants", kConstantsEntry);
  }

  /// Fills `storage` and `stored`. `meta` is what the graph says about the tensor.
  void attach(StateTensor& state, const TensorMeta& meta, bool isRead) const {
    const std::string where = fmt::format("{}: the description of `{}`", archive_.path, state.name);
    const auto found = payloads_.find(state.name);
    if (found == payloads_.end()) {
      if (!payloads_.empty() && isRead) {
        throw UsageError(fmt::format("{} describes no bytes for `{}`, which the graph reads; export it again", archive_.path, state.name));
      }
      return;
    }
    const Json& description = *found->second.description;
    if (asBool(member(description, "use_pickle", where), "use_pickle", where)) {
      if (isRead) {
        throw UsageError(
            fmt::format("{} stores `{}`, which the graph reads, as a pickled Python object; Pipewright reads plain tensors "
                        "only, so make it a tensor or a number in the model",
                        archive_.path, state.name));
      }
      return;
    }
    const Json& stored = member(description, "tensor_meta", where);
    const TensorMeta described = asTensorMeta(stored, where);
    if (described.dtype != meta.dtype || described.sizes != meta.sizes) {
      damaged(where, "contradicts the graph about its type or size");
    }
    const std::string entry =
        fmt::format("{}/{}", found->second.folder, asText(member(description, "path_name", where), "path_name", where));
    place(state, described, stored, entry, where);
  }

  [[nodiscard]] bool isEmpty() const { return payloads_.empty(); }

 private:
  [[nodiscard]] Json load(const std::map<std::string, std::string>& texts, const char* entry) const {
    const auto found = texts.find(entry);
    return found == texts.end() ? Json::object() : parseJson(found->second, fmt::format("{}: {}", archive_.path, entry));
  }

  void index(const Json& document, std::string_view folder, const char* entry) {
    const std::string where = fmt::format("{}: {}", archive_.path, entry);
    if (const Json* config = optionalMember(document, "config", where)) {
      const Json& payloads = asObject(*config, "config", where);
      for (auto item = payloads.begin(); item != payloads.end(); ++item) {
        payloads_.try_emplace(item.key(), Payload{&asObject(item.value(), item.key(), where), folder});
      }
    }
  }

  void place(StateTensor& state, const TensorMeta& meta, const Json& description, const std::string& entry,
             const std::string& where) const {
    StoredTensor stored;
    for (const Json& stride : asArray(member(description, "strides", where), "strides", where)) {
      stored.strides.push_back(literal(stride, "strides", where));
    }
    stored.storageOffset = literal(member(description, "storage_offset", where), "storage_offset", where);
    const Bytes needed = extent(meta, stored, where);
    const auto found = archive_.entries.find("data/" + entry);
    if (found != archive_.entries.end() && found->second.bytes >= needed && (found->second.bytes > 0 || needed == 0)) {
      stored.offset = found->second.offset;
      stored.bytes = Bytes(found->second.bytes);
      state.storage = "0:" + entry;
      state.stored = std::move(stored);
      return;
    }
    // The meta device has no bytes: torch writes one empty entry for all such tensors, so its name means nothing.
    const Json& device = member(member(description, "device", where), "type", where);
    if (asText(device, "device", where) != "meta") {
      throw UsageError(
          fmt::format("{} lacks bytes of `{:.120}`: its entry data/{:.120} {}; export it again", archive_.path, state.name, entry,
                      found == archive_.entries.end() ? std::string("is missing")
                                                      : fmt::format("has {} bytes, {} are needed", found->second.bytes, needed.value)));
    }
  }

  [[nodiscard]] static std::int64_t literal(const Json& value, std::string_view what, const std::string& where) {
    const SymbolicInt number = asSymbolic(value, what, where);
    if (!number.expression.empty() || number.hint < 0) {
      damaged(where, fmt::format("has something other than a number in `{}`", what));
    }
    return number.hint;
  }

  /// Bytes from the storage's start to the tensor's last element.
  [[nodiscard]] static Bytes extent(const TensorMeta& meta, const StoredTensor& stored, const std::string& where) {
    if (stored.strides.size() != meta.sizes.size()) {
      damaged(where, "has another number of strides than of sizes");
    }
    std::int64_t last = stored.storageOffset;
    bool overflows = false;
    for (std::size_t i = 0; i < meta.sizes.size(); ++i) {
      if (!meta.sizes[i].expression.empty()) {
        damaged(where, "has a symbolic size");
      }
      if (meta.sizes[i].hint == 0) {
        return 0;
      }
      std::int64_t step = 0;
      overflows = overflows || __builtin_mul_overflow(meta.sizes[i].hint - 1, stored.strides[i], &step) ||
                  __builtin_add_overflow(last, step, &last);
    }
    Bytes bytes = 0;
    if (overflows || __builtin_add_overflow(last, 1, &last) || __builtin_mul_overflow(last, widthOf(meta.dtype), &bytes.value)) {
      damaged(where, "is larger than any memory");
    }
    return bytes;
  }

  const Archive& archive_;
  Json weights_;
  Json constants_;
  std::unordered_map<std::string, Payload> payloads_;
};

/// True where `alias` is surely the same tensor as `other`. Without weights, torch keeps no sign of tying: there a
/// parameter no node reads counts as tied to one of equal type and size (the head of a language model, in practice).
bool isSameTensor(const ModelGraph& graph, const StateTensor& alias, const StateTensor& other) {
  if (graph.value(alias.value).tensor != graph.value(other.value).tensor) {
    return false;
  }
  return alias.storage == other.storage &&
         (!alias.stored || (alias.stored->strides == other.stored->strides && alias.stored->storageOffset == other.stored->storageOffset));
}

void foldTied(ModelGraph& graph, const std::vector<bool>& isRead) {
  std::unordered_map<std::string, std::vector<const StateTensor*>> readByStorage;
  for (const StateTensor& parameter : graph.parameters) {
    if (isRead[parameter.value.index()]) {
      readByStorage[parameter.storage].push_back(&parameter);
    }
  }
  std::vector<StateTensor> kept;
  for (const StateTensor& parameter : graph.parameters) {
    const StateTensor* same = nullptr;
    std::size_t matches = 0;
    if (!isRead[parameter.value.index()]) {
      for (const StateTensor* candidate : readByStorage[parameter.storage]) {
        if (isSameTensor(graph, parameter, *candidate)) {
          same = same == nullptr ? candidate : same;
          ++matches;
        }
      }
    }
    if (matches == 1 || (matches > 1 && parameter.stored)) {
      graph.tiedAliases.emplace(parameter.name, same->name);
    } else {
      kept.push_back(parameter);
    }
  }
  graph.parameters = std::move(kept);
}

}  // namespace

void attachState(ModelGraph& graph, const Archive& archive, const std::map<std::string, std::string>& texts,
                 const std::vector<bool>& isRead) {
  const Payloads payloads(archive, texts);
  for (std::vector<StateTensor>* states : {&graph.parameters, &graph.buffers, &graph.constants}) {
    for (StateTensor& state : *states) {
      payloads.attach(state, *graph.value(state.value).tensor, isRead[state.value.index()]);
    }
  }
  foldTied(graph, isRead);
}

}  // namespace pw::pt2
