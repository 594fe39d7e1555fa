#include "backends/checkpoints/unpickle.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "schedules/error.h"

namespace pw::pickle {

const Value* Dict::find(std::string_view key) const {
  const auto found = std::find_if(items.rbegin(), items.rend(), [&](const auto& item) {
    const auto* name = std::get_if<std::string_view>(&item.first);
    return name != nullptr && *name == key;
  });
  return found == items.rend() ? nullptr : &found->second;
}

void Tree::fail(const std::string& what) const { throw UsageError(fmt::format("{}: its pickle {}; {}.", where_, what, cure_)); }

/// The pickle machine.
class Machine {
 public:
  Machine(std::string_view bytes, Tree& tree) : bytes_(bytes), tree_(tree) {}

  Value run() {
    while (true) {
      const char code = take(1)[0];
      if (code == '.') return pop();
      if (!constant(code) && !container(code) && !memory(code) && !object(code))
        fail(fmt::format("has the unknown opcode 0x{:02x}", static_cast<unsigned char>(code)));
    }
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { tree_.fail(what); }

  std::string_view take(std::size_t count) {
    if (count > bytes_.size() - at_) fail("is truncated");
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
    if (end == std::string_view::npos) fail("is truncated");
    const std::string_view text = take(end - at_);
    ++at_;
    return text;
  }
  void push(Value value) { stack_.push_back(value); }
  Value pop() {
    if (stack_.empty()) fail("takes from an empty stack");
    const Value top = stack_.back();
    stack_.pop_back();
    return top;
  }
  std::vector<Value> popToMark() {
    const auto mark = std::find_if(stack_.rbegin(), stack_.rend(), [](const Value& value) { return std::holds_alternative<Mark>(value); });
    if (mark == stack_.rend()) fail("misses a mark");
    std::vector<Value> values(mark.base(), stack_.end());
    stack_.erase(mark.base() - 1, stack_.end());
    return values;
  }
  Value& top() {
    if (stack_.empty()) fail("takes from an empty stack");
    return stack_.back();
  }
  void pushList(std::vector<Value> items) { push(&tree_.lists_.emplace_back(List{std::move(items)})); }
  void pushTuple(std::size_t count) {
    if (stack_.size() < count) fail("takes from an empty stack");
    std::vector<Value> items(stack_.end() - static_cast<std::ptrdiff_t>(count), stack_.end());
    stack_.resize(stack_.size() - count);
    pushList(std::move(items));
  }
  void pushObject(Object made) { push(&tree_.objects_.emplace_back(std::move(made))); }
  void pushCall(Value callable, Value arguments) { pushObject({Object::Kind::Called, callable, arguments, {}, {}}); }

  bool constant(char code);
  bool container(char code);
  bool memory(char code);
  bool object(char code);
  void append(const std::vector<Value>& values);
  void set(const std::vector<Value>& values);

  std::string_view bytes_;
  std::size_t at_ = 0;
  Tree& tree_;
  std::vector<Value> stack_;
  std::unordered_map<std::uint64_t, Value> memo_;
};

bool Machine::constant(char code) {
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
    case 'B':
    case 'T':
      take(little(4));
      push(Opaque{});
      return true;  // bytes, old text
    case 'C':
    case 'U':
      take(little(1));
      push(Opaque{});
      return true;
    default: return false;
  }
}

bool Machine::container(char code) {
  switch (code) {
    case '(': push(Mark{}); return true;
    case ')':
    case ']': pushList({}); return true;
    case '}': push(&tree_.dicts_.emplace_back()); return true;
    case '\x8f': pushList({}); return true;  // a set
    case 't':
    case 'l':
    case '\x91': pushList(popToMark()); return true;
    case '\x85': pushTuple(1); return true;
    case '\x86': pushTuple(2); return true;
    case '\x87': pushTuple(3); return true;
    case 'a': append({pop()}); return true;
    case 'e':
    case '\x90': append(popToMark()); return true;
    case 's': {
      const Value value = pop();
      const Value key = pop();
      set({key, value});
      return true;
    }
    case 'u': set(popToMark()); return true;
    default: return false;
  }
}

void Machine::append(const std::vector<Value>& values) {
  List* const* list = std::get_if<List*>(&top());
  if (list == nullptr) return;  // into an object that is a list
  auto& items = (*list)->items;
  items.insert(items.end(), values.begin(), values.end());
}

void Machine::set(const std::vector<Value>& values) {
  if (values.size() % 2 != 0) fail("has a key without a value");
  Dict* dict = nullptr;
  if (Dict* const* found = std::get_if<Dict*>(&top())) dict = *found;
  if (Object* const* found = std::get_if<Object*>(&top())) dict = &(*found)->items;
  if (dict == nullptr) return;
  for (std::size_t i = 0; i < values.size(); i += 2) dict->items.emplace_back(values[i], values[i + 1]);
}

bool Machine::memory(char code) {
  const auto put = [&](std::uint64_t place) {
    memo_[place] = top();
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
    case '2': push(Value(top())); return true;
    default: return false;
  }
}

bool Machine::object(char code) {
  switch (code) {
    case 'c': {
      const std::string_view module = line();
      push(Global{module, line()});
      return true;
    }
    case '\x93': {
      const Value name = pop();
      const Value module = pop();
      push(Global{tree_.as<std::string_view>(module, "a module's name"), tree_.as<std::string_view>(name, "a class's name")});
      return true;
    }
    case 'R':
    case '\x81': {  // a call; a new object of a class
      const Value arguments = pop();
      pushCall(pop(), arguments);
      return true;
    }
    case '\x92': {  // with named arguments too
      pop();
      const Value arguments = pop();
      pushCall(pop(), arguments);
      return true;
    }
    case 'b': {
      const Value state = pop();
      if (Object* const* built = std::get_if<Object*>(&top())) (*built)->state = state;
      return true;
    }
    case 'Q': pushObject({Object::Kind::Persistent, {}, pop(), {}, {}}); return true;
    default: return false;
  }
}

Tree::Tree(std::string_view bytes, const std::string& where, const std::string& cure) : where_(where), cure_(cure) {
  root_ = Machine(bytes, *this).run();
}

}  // namespace pw::pickle
