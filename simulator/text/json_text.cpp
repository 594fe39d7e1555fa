#include "simulator/text/json_text.h"

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "schedules/error.h"

namespace pw {
namespace {

constexpr std::size_t kShownName = 40;

/// `line 3, column 7` of a byte offset; columns count bytes.
std::string placeOf(std::string_view text, std::size_t offset) {
  const std::string_view before = text.substr(0, std::min(offset, text.size()));
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const std::size_t begin = before.rfind('\n');
  return fmt::format("line {}, column {}", line, before.size() - (begin == std::string_view::npos ? 0 : begin + 1) + 1);
}

/// Builds the document from the parser's events and stops at the first that exceeds the limits. A list or object is built in place in its
/// parent, so that nothing is copied; lists grow only at their ends, and only while none of their elements is open.
template <class Json>
class Builder {
 public:
  Builder(std::string_view text, const JsonLimits& limits) : text_(text), limits_(limits) {}

  bool null() { return put(nullptr); }
  bool boolean(bool value) { return put(value); }
  bool number_integer(std::int64_t value) { return put(value); }
  bool number_unsigned(std::uint64_t value) { return put(value); }
  bool number_float(double value, const std::string& /*digits*/) { return put(value); }
  bool string(std::string& value) { return put(std::move(value)); }
  bool binary(typename Json::binary_t& /*value*/) { return stop("it contains bytes that are not JSON"); }
  bool start_object(std::size_t /*members*/) { return open(Json::object()); }
  bool start_array(std::size_t /*elements*/) { return open(Json::array()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool key(std::string& name) {
    Json& object = *open_.back();
    constexpr bool kOrdered = std::is_same_v<Json, nlohmann::ordered_json>;
    if (kOrdered && object.size() >= limits_.members) return stop(fmt::format("an object in it has more than {} members", limits_.members));
    const auto [place, isNew] = object.emplace(name, nullptr);
    if (!isNew) return stop(fmt::format("it has \"{}\" twice in one object", std::string_view(name).substr(0, kShownName)));
    member_ = &*place;
    return true;
  }
  bool parse_error(std::size_t position, const std::string& /*token*/, const nlohmann::json::exception& problem) {
    // out_of_range: a number that no double can hold; otherwise invalid JSON, or the text ends there.
    const bool tooLarge = problem.id == 406;
    const std::size_t offset = position > 0 ? position - 1 : 0;
    return stop(tooLarge ? fmt::format("it contains a number that is too large ({})", placeOf(text_, offset))
                         : fmt::format("it is not JSON, or truncated ({})", placeOf(text_, offset)));
  }

  [[nodiscard]] const std::string& problem() const { return problem_; }
  [[nodiscard]] Json take() { return std::move(root_); }

 private:
  bool stop(std::string what) {
    if (problem_.empty()) problem_ = std::move(what);
    return false;
  }
  /// Where the next value goes; null when there are too many.
  template <class Value>
  Json* place(Value&& value) {
    if (++values_ > limits_.values) {
      stop(fmt::format("it contains more than {} values", limits_.values));
      return nullptr;
    }
    if (open_.empty()) {
      root_ = Json(std::forward<Value>(value));
      return &root_;
    }
    if (open_.back()->is_array()) {
      open_.back()->push_back(Json(std::forward<Value>(value)));
      return &open_.back()->back();
    }
    *member_ = Json(std::forward<Value>(value));
    return member_;
  }
  template <class Value>
  bool put(Value&& value) {
    return place(std::forward<Value>(value)) != nullptr;
  }
  bool open(Json container) {
    if (open_.size() >= limits_.depth) return stop(fmt::format("it is nested more than {} levels deep", limits_.depth));
    Json* const where = place(std::move(container));
    if (where == nullptr) return false;
    open_.push_back(where);
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  std::string_view text_;
  const JsonLimits& limits_;
  Json root_;
  std::vector<Json*> open_;  ///< open lists and objects, outermost first
  Json* member_ = nullptr;   ///< of the innermost object: the one whose name was read last
  std::size_t values_ = 0;
  std::string problem_;
};

}  // namespace

template <class Json>
Json readJson(std::string_view text, const RefuseJson& refuse, const JsonLimits& limits) {
  std::string problem;
  Builder<Json> builder(text, limits);
  if (text.size() > limits.bytes) {
    problem = fmt::format("it is larger than {} bytes", limits.bytes);
  } else if (!Json::sax_parse(text.begin(), text.end(), &builder)) {
    problem = builder.problem().empty() ? "it is not JSON" : builder.problem();
  }
  if (problem.empty()) return builder.take();
  refuse(problem);
  return nullptr;
}

nlohmann::ordered_json ownJson(std::string_view text) {
  return readJson<nlohmann::ordered_json>(
      text, [](const std::string& what) { throw Error("Pipewright wrote JSON that it cannot read: " + what); });
}

template nlohmann::json readJson(std::string_view, const RefuseJson&, const JsonLimits&);
template nlohmann::ordered_json readJson(std::string_view, const RefuseJson&, const JsonLimits&);

}  // namespace pw
