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

void Launches::extend(AnnotatedRange& range, Ns start, Ns end) {
  range.firstKernel = range.kernels == 0 ? start : std::min(range.firstKernel, start);
  range.lastKernel = range.kernels == 0 ? end : std::max(range.lastKernel, end);
  ++range.kernels;
}

void Launches::addKernel(KernelKind kind, std::int64_t process, std::int64_t correlation, Ns start, Ns end, std::int64_t stream) {
  const auto number = processNumbers_.find(process);
  if (number == processNumbers_.end() || correlation < 0 || correlation >= (std::int64_t{1} << kCorrelationBits) || end < start) return;
  const auto at = rangeOf_.find(number->second << kCorrelationBits | static_cast<std::uint64_t>(correlation));
  if (at == rangeOf_.end()) return;
  AnnotatedRange& range = ranges_[static_cast<std::size_t>(at->second)];
  if (kind == KernelKind::Compute || range.kind < 0)
    extend(range, start, end);
  else
    (kind == KernelKind::Collective ? collectives_ : messages_).push_back({at->second, stream, start, end});
}

void Launches::finish() {
  std::map<std::pair<std::int64_t, int>, std::int64_t> actions;  // that launched something else, by process and kind
  for (const AnnotatedRange& range : ranges_) {
    if (range.kind >= 0 && range.kernels > 0) ++actions[{range.process, range.kind}];
  }
  std::map<std::tuple<std::int64_t, std::int64_t, int>, std::set<std::int32_t>> users;  // by process, stream and kind
  const auto keyOf = [&](const Transfer& collective) {
    const AnnotatedRange& range = ranges_[static_cast<std::size_t>(collective.range)];
    return std::tuple(range.process, collective.stream, range.kind);
  };
  for (const Transfer& collective : collectives_) users[keyOf(collective)].insert(collective.range);
  std::vector<bool> computes;  // by range, whether it launched something else
  for (const AnnotatedRange& range : ranges_) computes.push_back(range.kernels > 0);
  for (const Transfer& collective : collectives_) {
    AnnotatedRange& range = ranges_[static_cast<std::size_t>(collective.range)];
    const std::int64_t all = actions[{range.process, range.kind}];
    const bool isBeside = all > 1 && 2 * std::ssize(users[keyOf(collective)]) <= all;
    if (!isBeside || !computes[static_cast<std::size_t>(collective.range)])
      extend(range, collective.start, collective.end);
    else
      range.reducedUntil = std::max(range.reducedUntil, collective.end);
  }
  computes.clear();
  for (const AnnotatedRange& range : ranges_) computes.push_back(range.kernels > 0);
  for (const Transfer& message : messages_) {
    if (!computes[static_cast<std::size_t>(message.range)])
      extend(ranges_[static_cast<std::size_t>(message.range)], message.start, message.end);
  }
  std::map<std::int64_t, std::set<Ns>> begins;  // of actions' kernels, by process
  for (const AnnotatedRange& range : ranges_) {
    if (range.kind >= 0 && range.kernels > 0) begins[range.process].insert(range.firstKernel);
  }
  for (AnnotatedRange& range : ranges_) {
    if (range.reducedUntil == 0) continue;
    const std::set<Ns>& others = begins.at(range.process);
    const auto next = others.upper_bound(range.firstKernel);
    if (range.reducedUntil <= range.lastKernel || (next != others.end() && *next < range.reducedUntil)) range.reducedUntil = 0;
  }
}

KernelKind kernelKindOf(std::string_view name) {
  if (!name.starts_with("ncclDevKernel") && !name.starts_with("ncclKernel")) return KernelKind::Compute;
  return name.find("SendRecv") == std::string_view::npos ? KernelKind::Collective : KernelKind::Message;
}

}  // namespace pw
