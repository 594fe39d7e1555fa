#pragma once

// Internal to tensor files: a pickle as a tree of plain values. Nothing is imported or called.

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace pw::pickle {

struct List;
struct Dict;
struct Object;
struct Nothing {};  ///< None
struct Opaque {};   ///< a value that no file of tensors needs: bytes, a long integer
struct Mark {};     ///< MARK on the unpickler's stack; never part of a value
/// A class or function, by name.
struct Global {
  std::string_view module, name;
  bool operator==(const Global&) const = default;
};

/// Lists, dicts and objects are owned by the tree. They may contain themselves, so code that walks the tree must bound the depth.
using Value = std::variant<Nothing, Opaque, Mark, bool, std::int64_t, double, std::string_view, Global, List*, Dict*, Object*>;

/// A list, tuple or frozen set.
struct List {
  std::vector<Value> items;
};
struct Dict {
  std::vector<std::pair<Value, Value>> items;  ///< as they were set; a key may stand twice

  /// The last value of that key, or null.
  [[nodiscard]] const Value* find(std::string_view key) const;
};
/// What the pickle would have called or looked up.
struct Object {
  enum class Kind : std::uint8_t { Called, Persistent };  ///< Persistent: something outside the pickle, by its `arguments`
  Kind kind = Kind::Called;
  Value callable;
  Value arguments;
  Value state;  ///< what it is built from afterwards; Nothing without
  Dict items;   ///< what is set in it by key
};

class Tree {
 public:
  /// Reads protocols 2 to 5 (Lib/pickletools.py of CPython lists the opcodes), those that torch.save and dataclasses need. Throws
  /// UsageError beginning with `where` and ending with `cure` for a damaged pickle and unknown opcodes. Memory and time are linear in the
  /// size of `bytes`, which must outlive the tree.
  Tree(std::string_view bytes, const std::string& where, const std::string& cure);

  [[nodiscard]] const Value& root() const { return root_; }
  /// The value as a T; otherwise throws that sentence, saying that `what` was expected.
  template <class T>
  [[nodiscard]] T as(const Value& value, const char* what) const {
    const T* found = std::get_if<T>(&value);
    if (found == nullptr) fail(std::string("has something else where ") + what + " should be");
    return *found;
  }
  [[noreturn]] void fail(const std::string& what) const;

 private:
  friend class Machine;
  std::string where_, cure_;
  Value root_;
  std::deque<List> lists_;
  std::deque<Dict> dicts_;
  std::deque<Object> objects_;
};

}  // namespace pw::pickle
