#include "backends/traces/readers/launches.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace pw {
namespace {

constexpr unsigned kCorrelationBits = 40;

}  // namespace

Launches::Launches(std::vector<AnnotatedRange>& ranges) : ranges_(ranges) {
  std::map<std::int64_t, std::vector<std::tuple<Ns, bool, std::int32_t>>> edges;  // time, whether it begins, range
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    edges[ranges[i].process].emplace_back(ranges[i].start, true, static_cast<std::int32_t>(i));
    edges[ranges[i].process].emplace_back(ranges[i].end, false, static_cast<std::int32_t>(i));
  }
  for (auto& [process, of] : edges) {
    processNumbers_.emplace(process, processNumbers_.size());
    std::ranges::sort(of);  // at the same time ends come before begins
    std::vector<Cut>& cuts = cuts_[process];
    std::set<std::pair<Ns, std::int32_t>> open;  // by begin
    for (const auto& [time, begins, range] : of) {
      const std::pair key{ranges[static_cast<std::size_t>(range)].start, range};
      if (begins) {
        if (ranges[static_cast<std::size_t>(range)].end > time) open.insert(key);  // one without length launches nothing
      } else {
        open.erase(key);
      }
      const std::int32_t innermost = open.empty() ? -1 : std::prev(open.end())->second;
      if (!cuts.empty() && cuts.back().time == time)
        cuts.back().range = innermost;
      else
        cuts.push_back({time, innermost});
    }
  }
}

void Launches::addLaunch(std::int64_t process, std::int64_t correlation, Ns time) {
  const auto of = cuts_.find(process);
  if (of == cuts_.end() || correlation < 0 || correlation >= (std::int64_t{1} << kCorrelationBits)) return;
  const auto next = std::ranges::upper_bound(of->second, time, {}, &Cut::time);
  if (next == of->second.begin() || std::prev(next)->range < 0) return;
  rangeOf_.emplace(processNumbers_.at(process) << kCorrelationBits | static_cast<std::uint64_t>(correlation), std::prev(next)->range);
}

void Launches::addKernel(std::int64_t process, std::int64_t correlation, Ns start, Ns end) {
  const auto number = processNumbers_.find(process);
  if (number == processNumbers_.end() || correlation < 0 || correlation >= (std::int64_t{1} << kCorrelationBits) || end < start) return;
  const auto at = rangeOf_.find(number->second << kCorrelationBits | static_cast<std::uint64_t>(correlation));
  if (at == rangeOf_.end()) return;
  AnnotatedRange& range = ranges_[static_cast<std::size_t>(at->second)];
  range.firstKernel = range.kernels == 0 ? start : std::min(range.firstKernel, start);
  range.lastKernel = range.kernels == 0 ? end : std::max(range.lastKernel, end);
  ++range.kernels;
}

}  // namespace pw
