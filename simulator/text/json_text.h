#pragma once

// The one place where JSON text of files, archives and child processes becomes a document (simdjson reads traces, which are too large for
// one).

#include <cstddef>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace pw {

/// What a document may hold. A model's archive with sixteen nested sub-graphs needs about 170 levels; recursion over a document (copies,
/// comparisons, `dump`) needs about 200 bytes of stack per level.
struct JsonLimits {
  std::size_t bytes = std::size_t{1} << 30;
  std::size_t depth = 256;
  std::size_t values = std::size_t{1} << 26;  ///< numbers, texts, lists, objects: at least 16 bytes of memory each
  std::size_t members = 1024;                 ///< of one object that keeps its order, because lookups there are linear
};

/// Receives a phrase that says what is wrong with the text (`it is not JSON (line 3, column 7)`, `it has "ranks" twice`); usually throws.
using RefuseJson = std::function<void(const std::string& what)>;

/// The text as a document: one value, valid UTF-8, numbers that fit a double or 64 bits, no duplicate members, all within the limits. For
/// anything else calls `refuse`, and returns null if that returns. Linear. `Json` is nlohmann::json or nlohmann::ordered_json.
template <class Json>
[[nodiscard]] Json readJson(std::string_view text, const RefuseJson& refuse, const JsonLimits& limits = {});

/// Parses text that this program just wrote and that is therefore valid.
[[nodiscard]] nlohmann::ordered_json ownJson(std::string_view text);

extern template nlohmann::json readJson(std::string_view, const RefuseJson&, const JsonLimits&);
extern template nlohmann::ordered_json readJson(std::string_view, const RefuseJson&, const JsonLimits&);

}  // namespace pw
