#include "simulator/search/orders.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "simulator/plan/made_order.h"
#include "simulator/search/ranking.h"

namespace pw {

std::vector<OrderStart> orderStarts(const std::vector<SearchShape>& shapes, const std::vector<std::vector<Candidate>>& found, int most) {
  std::vector<OrderStart> starts;
  for (std::size_t s = 0; s < shapes.size(); ++s) {
    if (shapes[s].stages % shapes[s].request.ranks != 0) continue;
    for (const Candidate& candidate : found[s]) starts.push_back({&shapes[s], &candidate});
  }
  std::stable_sort(starts.begin(), starts.end(),
                   [](const OrderStart& a, const OrderStart& b) { return isBetter(*a.candidate, *b.candidate); });
  std::set<std::tuple<int, int, Recompute, std::vector<NodeId>>> known;
  std::erase_if(starts, [&](const OrderStart& start) {
    const PlanRequest& r = start.candidate->request;
    return !known.emplace(r.microbatches, start.candidate->stages, r.recompute, r.begins).second;
  });
  starts.resize(std::min(starts.size(), static_cast<std::size_t>(std::max(0, most))));
  return starts;
}

std::optional<Candidate> withOrder(const OrderStart& start, const std::function<bool()>& goOn) {
  const Candidate& from = *start.candidate;
  SearchShape shape = *start.shape;
  shape.request.schedule = kAutoSchedule;
  shape.request.chunks = shape.stages / shape.request.ranks;
  const OrderEffort effort{.seconds = kOrderSeconds, .goOn = [&](double) { return goOn(); }};
  MadeOrder made = makeOrder(from.request, *shape.model, shape.stages, effort);
  if (!goOn()) return std::nullopt;
  Candidate candidate = Evaluator(shape, std::move(made.rows)).evaluate({from.split, from.request.begins}, from.request.recompute);
  candidate.moves = from.moves;
  return candidate;
}

}  // namespace pw
