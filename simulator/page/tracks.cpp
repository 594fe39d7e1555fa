#include "simulator/page/tracks.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "simulator/report/explain_text.h"

namespace pw::page {

std::string base36(std::int64_t value) {
  constexpr std::string_view kDigits = "0123456789abcdefghijklmnopqrstuvwxyz";
  if (value == 0) return "0";
  std::string text;
  const bool negative = value < 0;
  for (auto rest = negative ? 0 - static_cast<std::uint64_t>(value) : static_cast<std::uint64_t>(value); rest > 0; rest /= 36)
    text += kDigits[rest % 36];
  if (negative) text += '-';
  std::ranges::reverse(text);
  return text;
}

std::size_t Tags::numberOf(const SpanTag& tag, Rank rank) {
  const int peer = tag.peer == rank ? -1 : tag.peer.value;
  return numbers_.emplace(std::tuple(static_cast<int>(tag.kind), tag.stage.value, peer), numbers_.size()).first->second;
}

std::string Tags::json() const {
  std::vector<std::string> rows(numbers_.size());
  for (const auto& [tag, number] : numbers_) rows[number] = fmt::format("[{},{},{}]", std::get<0>(tag), std::get<1>(tag), std::get<2>(tag));
  std::string text = "[";
  for (const std::string& row : rows) text += (text.size() > 1 ? "," : "") + row;
  return text + "]";
}

std::string tracksText(const SpanTrack& track, Rank rank, bool fromEnd, Tags& tags) {
  std::string text;
  std::map<std::size_t, Ns> durations;
  Ns before = 0;
  for (std::size_t i = 0; i < track.size(); ++i) {
    const Ns duration = track.end[i] - track.start[i], gap = track.start[i] - before;
    const std::size_t tag = tags.numberOf(track.tags[i], rank);
    const auto known = durations.find(tag);
    const int microbatch = track.tags[i].microbatch.value;
    if (i > 0) text += ';';
    text += gap == 0 ? "" : base36(gap.value);
    text += ',';
    if (known == durations.end() || known->second != duration) text += base36(duration.value);
    text += ',' + (tag == 0 ? std::string() : base36(static_cast<std::int64_t>(tag)));
    if (microbatch != 0) text += ',' + base36(microbatch);
    durations[tag] = duration;
    before = fromEnd ? track.end[i] : track.start[i];
  }
  return text;
}

std::string shortReasons(const PageLane& lane, Rank rank, const SpanTrack& compute) {
  std::string text;
  Ns before = 0;
  const auto add = [&](Ns start, const std::string& who) {
    if (!text.empty()) text += ';';
    text += base36((start - before).value) + ',' + who;
    before = start;
  };
  if (lane.explanation != nullptr) {
    const std::vector<Bubble>& bubbles = lane.explanation->bubbles;
    for (auto b = std::ranges::lower_bound(bubbles, rank, {}, &Bubble::rank); b != bubbles.end() && b->rank == rank; ++b)
      add(b->start, fmt::format("{},{}", b->awaitedRank.value, toString(b->awaited)));
    return text;
  }
  Ns end = 0;
  std::size_t at = 0;
  for (const Span& span : lane.trace->spans) {
    if (span.rank != rank || (span.kind != SpanKind::WaitForward && span.kind != SpanKind::WaitBackward)) continue;
    for (; at < compute.size() && compute.start[at] <= span.start; ++at) end = std::max(end, compute.end[at]);
    if (end >= before || text.empty())
      add(end, fmt::format("{},{},{}", span.kind == SpanKind::WaitForward ? 'F' : 'B', span.stage.value, span.microbatch.value));
  }
  return text;
}

std::map<std::pair<int, Ns>, std::string> longReasons(const Explanation& explanation, std::size_t bytes) {
  std::vector<const Bubble*> longest;
  for (const Bubble& bubble : explanation.bubbles) longest.push_back(&bubble);
  std::ranges::stable_sort(longest, [](const Bubble* a, const Bubble* b) { return a->end - a->start > b->end - b->start; });
  std::map<std::pair<int, Ns>, std::string> reasons;
  for (const Bubble* bubble : longest) {
    std::string text = toString(*bubble);
    if (text.size() + 24 > bytes) break;
    bytes -= text.size() + 24;
    reasons.emplace(std::pair(bubble->rank.value, bubble->start), std::move(text));
  }
  return reasons;
}

}  // namespace pw::page
