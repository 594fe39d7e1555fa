#include "backends/traces/names/patterns.h"

#include <algorithm>
#include <array>
#include <map>
#include <regex>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "schedules/error.h"
#include "schedules/placement.h"
#include "simulator/text/json_part.h"
#include "simulator/text/number_text.h"
#include "simulator/trace/span_kind.h"

namespace pw {
namespace {

using Meaning = PipelineLabel::Meaning;

constexpr std::size_t kMostPatterns = 100, kLongestPattern = 1000, kLongestMatched = 400;

/// A kind of span, or what is none: the begin of a step.
struct Kind {
  SpanKind kind = SpanKind::Forward;
  bool step = false;
};

/// Kinds as spans name them, and as people do.
std::optional<Kind> kindOf(std::string_view text) {
  static constexpr std::array<std::pair<std::string_view, SpanKind>, 14> kWords{{
      {"forward", SpanKind::Forward},
      {"fwd", SpanKind::Forward},
      {"f", SpanKind::Forward},
      {"backward", SpanKind::Backward},
      {"bwd", SpanKind::Backward},
      {"b", SpanKind::Backward},
      {"dgrad", SpanKind::BackwardInput},
      {"i", SpanKind::BackwardInput},
      {"wgrad", SpanKind::BackwardWeight},
      {"w", SpanKind::BackwardWeight},
      {"recv_f", SpanKind::WaitForward},
      {"recv_b", SpanKind::WaitBackward},
      {"RECV_F", SpanKind::WaitForward},
      {"RECV_B", SpanKind::WaitBackward},
  }};
  if (text == "STEP" || text == "step") return Kind{SpanKind::Forward, true};
  if (const auto kind = valueNamed<SpanKind>(text)) return Kind{*kind, false};
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  const auto found = std::ranges::find_if(kWords, [&](const auto& word) { return word.first == text || word.first == lower; });
  return found == kWords.end() ? std::nullopt : std::optional(Kind{found->second, false});
}

struct Pattern {
  std::regex regex;
  std::map<std::string, std::size_t, std::less<>> groups;  ///< number of each named group
  std::optional<Kind> kind;                                ///< where no group says it
  std::int32_t first = 0;                                  ///< the number of the first microbatch
};

/// The expression without the names of its groups, which std::regex does not know, and their numbers.
std::string withoutNames(std::string_view text, std::map<std::string, std::size_t, std::less<>>& groups) {
  std::string plain;
  std::size_t group = 0;
  bool inClass = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    plain += c;
    if (c == '\\' && i + 1 < text.size()) {
      plain += text[++i];
      continue;
    }
    if (inClass || c == '[') {
      inClass = c != ']';
      continue;
    }
    if (c != '(') continue;
    const std::string_view rest = text.substr(i + 1);
    if (!rest.starts_with('?')) {
      ++group;
      continue;
    }
    const std::size_t open = rest.starts_with("?P<") ? 3 : rest.starts_with("?<") ? 2 : 0;
    const std::size_t close = rest.find('>');
    if (open == 0 || close == std::string_view::npos || rest.substr(open).starts_with('=') || rest.substr(open).starts_with('!')) continue;
    groups.emplace(std::string(rest.substr(open, close - open)), ++group);
    i += close + 1;
  }
  return plain;
}

Pattern patternOf(const JsonPart& part) {
  Pattern pattern;
  for (const std::string& key : part.keys()) {
    if (key != "regex" && key != "kind" && key != "first")
      part.fail(fmt::format("has \"{}\", not regex, kind or first", key.substr(0, 40)));
  }
  const auto text = part["regex"].as<std::string>();
  if (text.size() > kLongestPattern) part["regex"].fail(fmt::format("is longer than {} characters", kLongestPattern));
  try {
    pattern.regex = std::regex(withoutNames(text, pattern.groups), std::regex::ECMAScript | std::regex::optimize);
  } catch (const std::regex_error&) {
    part["regex"].fail("is not a regular expression (ECMAScript, with named groups)");
  }
  for (const auto& [name, number] : pattern.groups) {
    if (name != "kind" && name != "stage" && name != "microbatch" && name != "step")
      part["regex"].fail(fmt::format("has a group \"{}\", not kind, stage, microbatch or step", name.substr(0, 40)));
  }
  if (part.has("kind")) {
    pattern.kind = kindOf(part["kind"].as<std::string>());
    if (!pattern.kind) part["kind"].fail("is none of F, B, I, W, SEND_F, SEND_B, RECV_F, RECV_B, REDUCE_GRAD, OPTIMIZER and STEP");
  } else if (!pattern.groups.contains("kind")) {
    part.fail("says no kind: give \"kind\", or a group named kind");
  }
  if (part.has("first")) pattern.first = part["first"].within<std::int32_t>(0, 1);
  return pattern;
}

/// The number of a group; −1 where there is none, nothing where it is no number below the limit.
std::optional<std::int32_t> numberIn(const std::cmatch& match, const Pattern& pattern, std::string_view group, std::int32_t limit) {
  const auto at = pattern.groups.find(group);
  if (at == pattern.groups.end() || !match[at->second].matched) return -1;
  const auto& text = match[at->second];
  const auto number = numberOf<std::int32_t>({text.first, static_cast<std::size_t>(text.length())});
  return number && *number >= 0 && *number < limit ? number : std::nullopt;
}

PipelineLabel labelOf(const std::cmatch& match, const Pattern& pattern) {
  std::optional<Kind> kind = pattern.kind;
  if (const auto at = pattern.groups.find("kind"); at != pattern.groups.end() && match[at->second].matched)
    kind = kindOf({match[at->second].first, static_cast<std::size_t>(match[at->second].length())});
  const auto stage = numberIn(match, pattern, "stage", kMaxStages);
  const auto microbatch = numberIn(match, pattern, "microbatch", kMaxMicrobatches);
  const auto step = numberIn(match, pattern, "step", 1 << 30);
  PipelineLabel label;
  if (!kind || !stage || !microbatch || !step) return label;
  label.kind = kind->kind;
  label.stage = Stage(*stage);
  label.microbatch = Microbatch(*microbatch < 0 ? -1 : *microbatch - pattern.first);
  if (kind->step) {
    label.meaning = Meaning::Step;
    label.number = std::max(0, std::max(*step, *microbatch));
  } else if (kind->kind == SpanKind::Optimizer) {
    label.meaning = Meaning::Optimizer;
    label.stage = Stage(-1);
    label.microbatch = Microbatch(-1);
  } else if (kind->kind == SpanKind::ReduceGrad || kind->kind == SpanKind::Load || kind->kind == SpanKind::Store) {
    label.meaning = Meaning::Action;
    label.microbatch = Microbatch(-1);
  } else if (*microbatch >= 0 && label.microbatch.value < 0) {
    label.meaning = Meaning::None;
  } else {
    label.meaning = label.microbatch.value < 0 ? Meaning::Ordered : label.stage.value < 0 ? Meaning::StageFree : Meaning::Action;
  }
  return label;
}

}  // namespace

struct NamePatterns::Compiled {
  std::vector<Pattern> patterns;
};

NamePatterns::NamePatterns() = default;

NamePatterns NamePatterns::parse(std::string_view text, const std::string& source) {
  const JsonDocument document{source, "file of patterns",
                              "write {\"patterns\": [{\"regex\": \"F (?<microbatch>\\\\d+)\", \"kind\": \"F\"}]}"};
  const nlohmann::ordered_json json = document.parse(text);
  const JsonPart list = JsonPart(json, document)["patterns"];
  if (list.size() == 0 || list.size() > kMostPatterns) list.fail(fmt::format("has {} patterns, not 1 to {}", list.size(), kMostPatterns));
  const auto compiled = std::make_shared<Compiled>();
  compiled->patterns = list.list(patternOf);
  NamePatterns result;
  result.patterns_ = compiled;
  return result;
}

PipelineLabel NamePatterns::label(std::string_view name) const {
  if (!patterns_ || name.size() > kLongestMatched) return {};
  for (const Pattern& pattern : patterns_->patterns) {
    std::cmatch match;
    try {
      if (std::regex_search(name.data(), name.data() + name.size(), match, pattern.regex)) return labelOf(match, pattern);
    } catch (const std::regex_error&) {  // too complex for this name: it is not one of the pattern's
    }
  }
  return {};
}

}  // namespace pw
