#include "backends/pickle.h"

#include <algorithm>
#include <bit>
#include <deque>
#include <fmt/format.h>
#include <optional>
#include <unordered_map>
#include <utility>
#include <variant>

#include "backends/pickle_write.h"
#include "schedules/error.h"

namespace pw::pickle {
namespace {

/// Longer names and more dimensions than any model has, so that a small hostile file cannot ask for much memory.
constexpr std::size_t kLongestName = 4096, kMostDimensions = 64;

struct List;
struct Dict;
struct Nothing {};
/// An object that is passed on without being looked into.
struct Opaque {};
struct Mark {};
struct Global {
  std::string_view module, name;
};
struct Storage {
  DType dtype = DType::Unknown;
  std::string_view key;
  std::int64_t elements = 0;
};
struct Tensor {
  Storage storage;
  std::int64_t offset = 0;
  const List* sizes = nullptr;
  const List* strides = nullptr;
};
/// Lists and dicts lie in the reader's arena, so that objects may hold themselves and depth costs no stack.
using Item = std::variant<Nothing, Opaque, Mark, bool, std::int64_t, double, std::string_view, Global, Storage, Tensor, List*, Dict*>;
struct List {
  std::vector<Item> items;
};
struct Dict {
  std::vector<std::pair<Item, Item>> items;
};

/// The pickle machine (Lib/pickletools.py of CPython lists its opcodes), as far as torch.save uses it.
class Reader {
 public:
  Reader(std::string_view bytes, const std::string& where) : bytes_(bytes), where_(where) {}

  TensorDict run() {
    while (true) {
      const char code = take(1)[0];
      if (code == '.') return result();
      if (!constant(code) && !container(code) && !memory(code) && !object(code)) fail(fmt::format("has the unknown opcode 0x{:02x}", static_cast<unsigned char>(code)));
    }
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw UsageError(fmt::format("{} is no dict of tensors, or it is damaged: its pickle {}; write it with torch.save({{'name': tensor, …}}, path).", where_, what));
  }

  std::string_view take(std::size_t count) {
    if (count > bytes_.size() - at_) fail("is cut short");
    at_ += count;
    return bytes_.substr(at_ - count, count);
  }
  std::uint64_t little(std::size_t count) {
    std::uint64_t number = 0;
    const std::string_view bytes = take(count);
    for (std::size_t i = count; i > 0; --i) number = number << 8U | static_cast<unsigned char>(bytes[i - 1]);
    return number;
  }
  std::string_view line() {
    const std::size_t end = bytes_.find('\n', at_);
    if (end == std::string_view::npos) fail("is cut short");
    const std::string_view text = take(end - at_);
    ++at_;
    return text;
  }
  void push(Item item) { stack_.push_back(item); }
  Item pop() {
    if (stack_.empty()) fail("takes from an empty stack");
    const Item top = stack_.back();
    stack_.pop_back();
    return top;
  }
  template <class T>
  T as(const Item& item, const char* what) const {
    const T* found = std::get_if<T>(&item);
    if (found == nullptr) fail(fmt::format("has something else where {} should be", what));
    return *found;
  }
  std::vector<Item> popToMark() {
    const auto mark = std::find_if(stack_.rbegin(), stack_.rend(), [](const Item& item) { return std::holds_alternative<Mark>(item); });
    if (mark == stack_.rend()) fail("misses a mark");
    std::vector<Item> items(mark.base(), stack_.end());
    stack_.erase(mark.base() - 1, stack_.end());
    return items;
  }
  List* makeList(std::vector<Item> items) { return &lists_.emplace_back(List{std::move(items)}); }
  List* makeTuple(std::size_t count) {
    if (stack_.size() < count) fail("takes from an empty stack");
    std::vector<Item> items(stack_.end() - static_cast<std::ptrdiff_t>(count), stack_.end());
    stack_.resize(stack_.size() - count);
    return makeList(std::move(items));
  }

  bool constant(char code);
  bool container(char code);
  bool memory(char code);
  bool object(char code);
  void addPairs(const std::vector<Item>& items);
  Item call(const Item& callable, const Item& arguments);
  Item storage(const Item& identity) const;
  Item tensor(const List& arguments) const;
  TensorDict result();
  TensorEntry entry(std::string_view name, const Tensor& tensor) const;

  std::string_view bytes_;
  std::size_t at_ = 0;
  const std::string& where_;
  std::vector<Item> stack_;
  std::unordered_map<std::uint64_t, Item> memo_;
  std::deque<List> lists_;
  std::deque<Dict> dicts_;
};

bool Reader::constant(char code) {
  switch (code) {
    case 'N': push(Nothing{}); return true;
    case '\x88': push(true); return true;
    case '\x89': push(false); return true;
    case 'K': push(static_cast<std::int64_t>(little(1))); return true;
    case 'M': push(static_cast<std::int64_t>(little(2))); return true;
    case 'J': push(static_cast<std::int64_t>(static_cast<std::int32_t>(little(4)))); return true;
    case '\x8a': {  // LONG1: little-endian two's complement of any length
      const std::size_t count = little(1);
      if (count > 8) {  // larger than any size or number we take
        take(count);
        push(Opaque{});
        return true;
      }
      std::uint64_t number = little(count);
      if (count > 0 && count < 8 && (number >> (8 * count - 1) & 1U) != 0) number |= ~std::uint64_t{0} << (8 * count);
      push(static_cast<std::int64_t>(number));
      return true;
    }
    case 'G': {  // BINFLOAT: big-endian
      std::uint64_t bits = 0;
      for (const char c : take(8)) bits = bits << 8U | static_cast<unsigned char>(c);
      push(std::bit_cast<double>(bits));
      return true;
    }
    case 'X': push(take(little(4))); return true;
    case '\x8c': push(take(little(1))); return true;
    case '\x8d': push(take(little(8))); return true;
    case 'B': case 'T': take(little(4)); push(Opaque{}); return true;  // bytes, old text
    case 'C': case 'U': take(little(1)); push(Opaque{}); return true;
    default: return false;
  }
}

bool Reader::container(char code) {
  switch (code) {
    case '(': push(Mark{}); return true;
    case ')': case ']': push(makeList({})); return true;
    case '}': case '\x8f': push(&dicts_.emplace_back()); return true;  // a set stays empty
    case 't': case 'l': case '\x91': push(makeList(popToMark())); return true;
    case '\x85': push(makeTuple(1)); return true;
    case '\x86': push(makeTuple(2)); return true;
    case '\x87': push(makeTuple(3)); return true;
    case 'a': pop(); return true;  // lists are never looked into
    case 'e': case '\x90': popToMark(); return true;
    case 's': {
      const Item value = pop();
      const Item key = pop();
      addPairs({key, value});
      return true;
    }
    case 'u': addPairs(popToMark()); return true;
    default: return false;
  }
}

void Reader::addPairs(const std::vector<Item>& items) {
  if (items.size() % 2 != 0) fail("has a key without a value");
  if (stack_.empty()) fail("takes from an empty stack");
  Dict* const* dict = std::get_if<Dict*>(&stack_.back());
  if (dict == nullptr) return;  // of an object that is passed on
  for (std::size_t i = 0; i < items.size(); i += 2) (*dict)->items.emplace_back(items[i], items[i + 1]);
}

bool Reader::memory(char code) {
  const auto put = [&](std::uint64_t place) {
    if (stack_.empty()) fail("takes from an empty stack");
    memo_[place] = stack_.back();
    return true;
  };
  const auto get = [&](std::uint64_t place) {
    const auto found = memo_.find(place);
    if (found == memo_.end()) fail("refers to nothing");
    push(found->second);
    return true;
  };
  switch (code) {
    case '\x80': take(1); return true;  // protocol
    case '\x95': take(8); return true;  // frame
    case '\x94': return put(memo_.size());
    case 'q': return put(little(1));
    case 'r': return put(little(4));
    case 'h': return get(little(1));
    case 'j': return get(little(4));
    case '0': pop(); return true;
    case '1': popToMark(); return true;
    case '2':
      if (stack_.empty()) fail("takes from an empty stack");
      push(stack_.back());
      return true;
    default: return false;
  }
}

bool Reader::object(char code) {
  switch (code) {
    case 'c': {
      const std::string_view module = line();
      push(Global{module, line()});
      return true;
    }
    case '\x93': {
      const Item name = pop();
      const Item module = pop();
      push(Global{as<std::string_view>(module, "a module's name"), as<std::string_view>(name, "a class's name")});
      return true;
    }
    case 'R': {
      const Item arguments = pop();
      const Item callable = pop();
      push(call(callable, arguments));
      return true;
    }
    case '\x81': pop(); pop(); push(Opaque{}); return true;         // NEWOBJ
    case '\x92': pop(); pop(); pop(); push(Opaque{}); return true;  // NEWOBJ_EX
    case 'b': pop(); return true;  // attributes: a state dict's `_metadata`
    case 'Q': push(storage(pop())); return true;
    default: return false;
  }
}

Item Reader::call(const Item& callable, const Item& arguments) {
  const auto* global = std::get_if<Global>(&callable);
  List* const* list = std::get_if<List*>(&arguments);
  if (global == nullptr || list == nullptr) return Opaque{};
  if (global->module == "collections" && global->name == "OrderedDict") return &dicts_.emplace_back();
  if (global->module != "torch._utils") return Opaque{};
  // v3 is of types without a storage class: they stay Unknown.
  if (global->name == "_rebuild_tensor" || global->name == "_rebuild_tensor_v2" || global->name == "_rebuild_tensor_v3") return tensor(**list);
  const bool wraps = global->name == "_rebuild_parameter" || global->name == "_rebuild_parameter_with_state";
  return wraps && !(*list)->items.empty() ? (*list)->items.front() : Opaque{};
}

Item Reader::storage(const Item& identity) const {
  const List* fields = as<List*>(identity, "a storage");
  if (fields->items.size() < 5) fail("has a storage with too few fields");
  Storage made;
  if (const auto* global = std::get_if<Global>(&fields->items[1]); global != nullptr && global->module == "torch") {
    made.dtype = storageType(global->name);
  }
  made.key = as<std::string_view>(fields->items[2], "a storage's name");
  made.elements = as<std::int64_t>(fields->items[4], "a storage's size");
  return made;
}

Item Reader::tensor(const List& arguments) const {
  if (arguments.items.size() < 4) fail("has a tensor with too few fields");
  return Tensor{as<Storage>(arguments.items[0], "a storage"), as<std::int64_t>(arguments.items[1], "an offset"),
                as<List*>(arguments.items[2], "sizes"), as<List*>(arguments.items[3], "strides")};
}

TensorEntry Reader::entry(std::string_view name, const Tensor& tensor) const {
  if (tensor.storage.key.size() > kLongestName) fail("has an overlong name");
  if (tensor.sizes->items.size() > kMostDimensions || tensor.strides->items.size() > kMostDimensions) fail("has a tensor of too many dimensions");
  TensorEntry made{std::string(name), tensor.storage.dtype, std::string(tensor.storage.key), tensor.storage.elements, tensor.offset, {}, {}};
  for (const Item& size : tensor.sizes->items) made.sizes.push_back(as<std::int64_t>(size, "a size"));
  for (const Item& stride : tensor.strides->items) made.strides.push_back(as<std::int64_t>(stride, "a stride"));
  return made;
}

TensorDict Reader::result() {
  const Dict* dict = as<Dict*>(pop(), "the dict");
  TensorDict made;
  std::unordered_map<std::string_view, std::size_t> places;
  for (const auto& [key, value] : dict->items) {
    const auto* name = std::get_if<std::string_view>(&key);
    if (name == nullptr) continue;
    if (name->size() > kLongestName) fail("has an overlong name");
    if (const auto* found = std::get_if<Tensor>(&value)) {
      const auto [place, isNew] = places.emplace(*name, made.tensors.size());
      if (isNew) {
        made.tensors.push_back(entry(*name, *found));
      } else {
        made.tensors[place->second] = entry(*name, *found);
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

TensorDict read(std::string_view bytes, const std::string& where) { return Reader(bytes, where).run(); }

}  // namespace pw::pickle
