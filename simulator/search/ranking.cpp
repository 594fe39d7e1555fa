#include "simulator/search/ranking.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <tuple>

namespace pw {

bool isBetter(const Candidate& a, const Candidate& b) {
  if (a.excess != b.excess) return a.excess < b.excess;
  if (a.samplesPerSecond != b.samplesPerSecond) return a.samplesPerSecond > b.samplesPerSecond;
  const auto rest = [](const Candidate& c) {
    return std::tie(c.peak, c.stages, c.request.schedule, c.request.microbatches, c.request.recompute, c.request.begins,
                    c.request.rankOrder);
  };
  return rest(a) < rest(b);
}

void rankCandidates(std::vector<Candidate>& candidates) {
  std::sort(candidates.begin(), candidates.end(), isBetter);
  const auto same = [](const Candidate& a, const Candidate& b) { return a.request == b.request; };
  candidates.erase(std::unique(candidates.begin(), candidates.end(), same), candidates.end());
  markFront(candidates);
  markLeads(candidates);
}

void markFront(std::vector<Candidate>& candidates) {
  std::vector<Candidate*> order;
  order.reserve(candidates.size());
  for (Candidate& c : candidates) order.push_back(&c);
  std::stable_sort(order.begin(), order.end(), [](const Candidate* a, const Candidate* b) {
    return a->samplesPerSecond != b->samplesPerSecond ? a->samplesPerSecond > b->samplesPerSecond : a->peak < b->peak;
  });
  std::optional<Bytes> least;
  for (Candidate* c : order) {
    c->onFront = !least || c->peak < *least;
    if (c->onFront) least = c->peak;
  }
}

void markLeads(std::vector<Candidate>& candidates) {
  std::map<std::tuple<std::string, int, int, Recompute>, Candidate*> leaders;
  for (Candidate& c : candidates) {
    Candidate*& leader = leaders[{c.request.schedule, c.request.chunks, c.request.microbatches, c.request.recompute}];
    c.leads = leader == nullptr || isBetter(c, *leader);
    if (!c.leads) continue;
    if (leader != nullptr) leader->leads = false;
    leader = &c;
  }
}

bool areIndistinguishable(const Uncertainty& uncertainty, const Candidate& a, const Candidate& b) {
  if (a.samples == b.samples || a.samples <= 0 || b.samples <= 0) return areIndistinguishable(uncertainty, a.step, b.step);
  const double scaled = static_cast<double>(b.step) * static_cast<double>(a.samples) / static_cast<double>(b.samples);
  return areIndistinguishable(uncertainty, a.step, static_cast<Ns>(std::llround(scaled)));
}

}  // namespace pw
