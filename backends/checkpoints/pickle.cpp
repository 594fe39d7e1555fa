#include "backends/checkpoints/pickle.h"

#include <limits>
#include <optional>
#include <unordered_map>
#include <utility>

#include "backends/checkpoints/pickle_write.h"
#include "backends/checkpoints/unpickle.h"

namespace pw::pickle {
namespace {

/// Limits beyond any model's names and dimensions, so that a small hostile file cannot make us allocate much memory.
constexpr std::size_t kLongestName = 4096, kMostDimensions = 64;

const char* const kCure = "write it with torch.save({'name': tensor, …}, path)";

struct Storage {
  DType dtype = DType::Unknown;
  std::string_view key;
  std::int64_t elements = 0;
};

/// The objects of a pickle of torch.save, as its persistent ids and `torch._utils._rebuild_…` calls have them.
class Reader {
 public:
  Reader(std::string_view bytes, const std::string& where) : tree_(bytes, where + " is not a dict of tensors, or it is damaged", kCure) {}

  [[nodiscard]] TensorDict dict() const;
  [[nodiscard]] TensorEntry tensor() const {
    const auto found = asTensor(tree_.root(), "");
    if (!found) tree_.fail("has something else where a tensor should be");
    return *found;
  }

 private:
  [[nodiscard]] const Dict* asDict(const Value& value) const;
  [[nodiscard]] std::optional<TensorEntry> asTensor(const Value& value, std::string_view name) const;
  [[nodiscard]] TensorEntry rebuilt(const List& arguments, std::string_view name) const;
  [[nodiscard]] Storage storage(const Value& value) const;
  [[nodiscard]] std::vector<std::int64_t> numbers(const Value& value, const char* what) const;

  Tree tree_;
};

/// A dict or an OrderedDict; null for anything else.
const Dict* Reader::asDict(const Value& value) const {
  if (const auto* dict = std::get_if<Dict*>(&value)) return *dict;
  const auto* object = std::get_if<Object*>(&value);
  if (object == nullptr) return nullptr;
  const auto* global = std::get_if<Global>(&(*object)->callable);
  return global != nullptr && *global == Global{"collections", "OrderedDict"} ? &(*object)->items : nullptr;
}

std::vector<std::int64_t> Reader::numbers(const Value& value, const char* what) const {
  const List* list = tree_.as<List*>(value, what);
  if (list->items.size() > kMostDimensions) tree_.fail("has a tensor of too many dimensions");
  std::vector<std::int64_t> made;
  for (const Value& number : list->items) made.push_back(tree_.as<std::int64_t>(number, what));
  return made;
}

Storage Reader::storage(const Value& value) const {
  const Object* object = tree_.as<Object*>(value, "a storage");
  if (object->kind != Object::Kind::Persistent) tree_.fail("has something else where a storage should be");
  const List* fields = tree_.as<List*>(object->arguments, "a storage");
  if (fields->items.size() < 5) tree_.fail("has a storage with too few fields");
  Storage made;
  if (const auto* global = std::get_if<Global>(&fields->items[1]); global != nullptr && global->module == "torch") {
    made.dtype = storageType(global->name);
  }
  made.key = tree_.as<std::string_view>(fields->items[2], "a storage's name");
  if (made.key.size() > kLongestName) tree_.fail("has an overlong name");
  made.elements = tree_.as<std::int64_t>(fields->items[4], "a storage's size");
  return made;
}

TensorEntry Reader::rebuilt(const List& arguments, std::string_view name) const {
  if (arguments.items.size() < 4) tree_.fail("has a tensor with too few fields");
  const Storage from = storage(arguments.items[0]);
  return {std::string(name),
          from.dtype,
          std::string(from.key),
          from.elements,
          tree_.as<std::int64_t>(arguments.items[1], "an offset"),
          numbers(arguments.items[2], "sizes"),
          numbers(arguments.items[3], "strides")};
}

/// A tensor, or a parameter of one; nothing for other values.
std::optional<TensorEntry> Reader::asTensor(const Value& value, std::string_view name) const {
  constexpr int kWraps = 8;  // a parameter of a parameter has no meaning, but a pickle can say it
  Value inner = value;
  for (int i = 0; i < kWraps; ++i) {
    const auto* object = std::get_if<Object*>(&inner);
    if (object == nullptr) return std::nullopt;
    const auto* global = std::get_if<Global>(&(*object)->callable);
    const auto* arguments = std::get_if<List*>(&(*object)->arguments);
    if (global == nullptr || arguments == nullptr || global->module != "torch._utils") return std::nullopt;
    // v3 is of types without a storage class: they stay Unknown.
    if (global->name == "_rebuild_tensor" || global->name == "_rebuild_tensor_v2" || global->name == "_rebuild_tensor_v3")
      return rebuilt(**arguments, name);
    const bool wraps = global->name == "_rebuild_parameter" || global->name == "_rebuild_parameter_with_state";
    if (!wraps || (*arguments)->items.empty()) return std::nullopt;
    inner = (*arguments)->items.front();
  }
  return std::nullopt;
}

TensorDict Reader::dict() const {
  const Dict* dict = asDict(tree_.root());
  if (dict == nullptr) tree_.fail("has something else where the dict should be");
  TensorDict made;
  std::unordered_map<std::string_view, std::size_t> places;
  for (const auto& [key, value] : dict->items) {
    const auto* name = std::get_if<std::string_view>(&key);
    if (name == nullptr) continue;
    if (name->size() > kLongestName) tree_.fail("has an overlong name");
    if (auto found = asTensor(value, *name)) {
      const auto [place, isNew] = places.emplace(*name, made.tensors.size());
      if (isNew) {
        made.tensors.push_back(std::move(*found));
      } else {
        made.tensors[place->second] = std::move(*found);
      }
    } else if (const auto* integer = std::get_if<std::int64_t>(&value)) {
      made.numbers[std::string(*name)] = static_cast<double>(*integer);
    } else if (const auto* number = std::get_if<double>(&value)) {
      made.numbers[std::string(*name)] = *number;
    } else if (const auto* truth = std::get_if<bool>(&value)) {
      made.numbers[std::string(*name)] = *truth ? 1 : 0;
    }
  }
  return made;
}

}  // namespace

std::optional<std::int64_t> elementsOf(const std::vector<std::int64_t>& sizes) {
  std::int64_t elements = 1;
  for (const std::int64_t size : sizes) {
    if (size < 0 || __builtin_mul_overflow(elements, size, &elements)) return std::nullopt;
  }
  return elements;
}

std::optional<std::int64_t> reachOf(const TensorEntry& entry) {
  std::int64_t last = entry.offset;
  bool isEmpty = false;
  if (entry.offset < 0 || entry.sizes.size() != entry.strides.size()) return std::nullopt;
  for (std::size_t i = 0; i < entry.sizes.size(); ++i) {
    const std::int64_t size = entry.sizes[i], stride = entry.strides[i];
    if (size < 0 || stride < 0) return std::nullopt;
    isEmpty = isEmpty || size == 0;
    std::int64_t step = 0;
    if (size > 0 && (__builtin_mul_overflow(size - 1, stride, &step) || __builtin_add_overflow(last, step, &last))) return std::nullopt;
  }
  if (isEmpty) return 0;
  return last == std::numeric_limits<std::int64_t>::max() ? std::nullopt : std::optional(last + 1);
}

TensorDict read(std::string_view bytes, const std::string& where) { return Reader(bytes, where).dict(); }

TensorEntry readTensor(std::string_view bytes, const std::string& where) { return Reader(bytes, where).tensor(); }

void requireLittleEndian(std::string_view order, const std::string& where) {
  if (order != "little")
    throw UsageError(
        fmt::format("{} holds big-endian tensors, which this version does not read; save it on a little-endian machine", where));
}

}  // namespace pw::pickle
