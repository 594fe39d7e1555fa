#include "simulator/order/limit_sensitivity.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "schedules/error.h"

namespace pw {
namespace {

/// The limits of one rank, or of all, times a factor.
OrderProblem scaledLimits(OrderProblem problem, std::optional<Rank> rank, double factor) {
  constexpr double kMost = 0.25 * static_cast<double>(std::numeric_limits<Bytes>::max());
  const auto changes = [&](std::size_t r) { return !rank || rank->index() == r; };
  for (std::size_t r = 0; r < problem.limits.size(); ++r) {
    if (changes(r)) problem.limits[r] = static_cast<Bytes>(std::min(kMost, std::floor(static_cast<double>(problem.limits[r]) * factor)));
  }
  for (std::size_t r = 0; r < problem.liveLimits.size(); ++r) {
    int& limit = problem.liveLimits[r];
    const int step = std::max(1, static_cast<int>(std::lround(limit * std::abs(factor - 1))));
    if (changes(r)) limit = std::max(0, factor > 1 ? limit + step : limit - step);
  }
  return problem;
}

}  // namespace

std::vector<LimitSensitivity> limitSensitivity(const OrderProblem& problem, Ns now, double change, const OrderEffort& effort) {
  requireChange(change);
  if (problem.limits.empty() && problem.liveLimits.empty()) return {};
  std::vector<LimitSensitivity> all{{std::nullopt, now, now, std::nullopt}};
  for (int r = 0; r < problem.ranks && problem.ranks > 1; ++r) all.push_back({Rank(r), now, now, std::nullopt});
  OrderEffort part = effort;
  part.seconds = effort.seconds / 4;
  double done = 0;
  const double searches = 2.0 * static_cast<double>(all.size());
  if (effort.shouldContinue) part.shouldContinue = [&](double share) { return effort.shouldContinue((done + share) / searches); };
  const auto timeWith = [&](std::optional<Rank> rank, double factor) {
    const std::optional<FoundOrder> found = findOrder(scaledLimits(problem, rank, factor), part);
    ++done;
    return found ? std::optional(found->certificate.time) : std::nullopt;
  };
  for (LimitSensitivity& one : all) {
    one.more = std::min(now, timeWith(one.rank, 1 + change).value_or(now));
    if (const std::optional<Ns> less = timeWith(one.rank, 1 - change)) one.less = std::max(now, *less);
  }
  for (LimitSensitivity& one : all) {  // what fits beside one smaller limit fits beside the others as they are, and the reverse
    all.front().more = std::min(all.front().more, one.more);
    const std::optional<Ns> less = all.front().less;
    if (less && (!one.less || *less < *one.less)) one.less = less;
  }
  return all;
}

}  // namespace pw
