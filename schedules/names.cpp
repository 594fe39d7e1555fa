#include "schedules/names.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace pw {

int editDistance(std::string_view a, std::string_view b) {
  std::vector<int> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    int diagonal = std::exchange(row[0], static_cast<int>(i));
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const int substitution = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({substitution, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

std::string plainName(std::string_view name) {
  std::string plain;
  for (const char c : name) {
    if (c >= 'A' && c <= 'Z')
      plain += static_cast<char>(c - 'A' + 'a');
    else if (c != '-' && c != '_' && c != ' ')
      plain += c;
  }
  return plain;
}

std::vector<std::string_view> nearNames(std::string_view name, const std::vector<std::string_view>& known, std::size_t most) {
  const std::string wanted = plainName(name);
  std::vector<std::pair<int, std::string_view>> near;
  for (const std::string_view other : known) {
    const std::string plain = plainName(other);
    if (std::ranges::any_of(near, [&](const auto& entry) { return plainName(entry.second) == plain; })) continue;
    const bool begins = wanted.size() >= 2 && plain.starts_with(wanted);
    const int distance = begins ? 0 : editDistance(wanted, plain);
    if (begins || 3 * distance <= static_cast<int>(wanted.size())) near.emplace_back(distance, other);
  }
  std::stable_sort(near.begin(), near.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string_view> names;
  for (std::size_t i = 0; i < std::min(most, near.size()); ++i) names.push_back(near[i].second);
  return names;
}

std::string didYouMean(std::string_view name, const std::vector<std::string_view>& known) {
  const auto near = nearNames(name, known);
  return near.empty() ? std::string() : fmt::format(" (did you mean {}?)", fmt::join(near, " or "));
}

}  // namespace pw
