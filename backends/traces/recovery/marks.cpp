#include "backends/traces/recovery/marks.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "simulator/text/median.h"

namespace pw {
namespace {

using Marks = std::vector<std::pair<Ns, std::int32_t>>;

/// How many actions begin before each mark, and in all.
std::vector<std::size_t> positionsOf(const Marks& marks, const std::vector<Ns>& starts) {
  std::vector<std::size_t> positions;
  for (const auto& [time, number] : marks)
    positions.push_back(static_cast<std::size_t>(std::ranges::lower_bound(starts, time) - starts.begin()));
  positions.push_back(starts.size());
  return positions;
}

/// Actions of most steps; 0 where there are none.
std::size_t usualCount(const std::vector<std::size_t>& positions) {
  std::vector<std::size_t> counts;
  for (std::size_t k = 1; k < positions.size(); ++k) {
    if (positions[k] > positions[k - 1]) counts.push_back(positions[k] - positions[k - 1]);
  }
  return lowerMedianOf(std::move(counts)).value_or(0);
}

/// The marks that a rank lacks. `numbers`: all steps that are marked anywhere.
Marks missingOf(const Marks& marks, const std::vector<Ns>& starts, const std::set<std::int32_t>& numbers) {
  const std::vector<std::size_t> positions = positionsOf(marks, starts);
  const std::size_t usual = usualCount(positions);
  Marks missing;
  if (usual == 0) return missing;
  std::size_t room = positions.front();  // backwards from the first mark
  for (auto at = numbers.lower_bound(marks.front().second); at != numbers.begin() && room >= usual;) {
    room -= usual;
    missing.emplace_back(starts[room], *--at);
  }
  for (std::size_t k = 0; k < marks.size(); ++k) {
    const bool isLast = k + 1 == marks.size();
    const std::size_t count = positions[k + 1] - positions[k];
    std::vector<std::int32_t> between;
    for (auto at = numbers.upper_bound(marks[k].second); at != numbers.end() && (isLast || *at < marks[k + 1].second); ++at)
      between.push_back(*at);
    if (!isLast && count != (between.size() + 1) * usual) continue;
    for (std::size_t j = 0; j < between.size() && (j + 1) * usual < count; ++j)
      missing.emplace_back(starts[positions[k] + (j + 1) * usual], between[j]);
  }
  return missing;
}

}  // namespace

void completeMarks(RankMarks& marks, const std::vector<Span>& spans, std::vector<std::string>& notes) {
  std::set<std::int32_t> numbers;
  for (const Marks& ofRank : marks) {
    for (const auto& [time, number] : ofRank) numbers.insert(number);
  }
  const auto lacksSome = [&](const Marks& ofRank) { return !ofRank.empty() && ofRank.size() < numbers.size(); };
  if (std::ranges::none_of(marks, lacksSome)) return;
  std::vector<std::vector<Ns>> starts(marks.size());
  for (const Span& span : spans) {
    if (isCompute(span.kind) && span.rank.index() < starts.size()) starts[span.rank.index()].push_back(span.start);
  }
  for (std::size_t rank = 0; rank < marks.size(); ++rank) {
    if (!lacksSome(marks[rank])) continue;
    const Marks missing = missingOf(marks[rank], starts[rank], numbers);
    if (missing.empty()) continue;
    std::set<std::int32_t> steps;
    for (const auto& [time, number] : missing) steps.insert(number);
    marks[rank].insert(marks[rank].end(), missing.begin(), missing.end());
    std::ranges::sort(marks[rank]);
    notes.push_back(fmt::format("Rank {} lacks the mark{} of step{} {}: {} with its first action.", rank, steps.size() == 1 ? "" : "s",
                                steps.size() == 1 ? "" : "s", fmt::join(steps, ", "),
                                steps.size() == 1 ? "it is taken to begin" : "each is taken to begin"));
  }
}

}  // namespace pw
