#include "simulator/costs/topology.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <Eigen/Dense>

#include "schedules/error.h"
#include "schedules/units.h"
#include "simulator/text/rounding.h"

namespace pw {
namespace {

constexpr LinkSpec kSameRank{};  ///< nothing is sent

/// After how many replicas the same pattern of nodes begins anew; `replicas` where it never does.
int distinctReplicas(const Topology& topology, int ranks, int replicas) {
  if (!topology.ranks.empty() || !topology.links.empty()) return replicas;
  if (topology.ranksPerNode == 0) return 1;
  return std::min(replicas, topology.ranksPerNode / std::gcd(topology.ranksPerNode, ranks));
}

}  // namespace

Ns transferTime(const LinkSpec& link, Bytes bytes) {
  if (link.bytesPerSecond <= 0 || bytes <= 0) return 0;
  return nsOf(static_cast<double>(bytes) / link.bytesPerSecond * 1e9, "a message");
}

LinkSpec fitLink(const std::vector<std::pair<Bytes, Ns>>& oneWayTimes) {
  const bool differ =
      std::any_of(oneWayTimes.begin(), oneWayTimes.end(), [&](const auto& t) { return t.first != oneWayTimes.front().first; });
  if (!differ) throw UsageError("a link is fitted to times of at least two different message sizes; measure another size");
  // Minimises Σ ((latency + perByte · n − t) / t)². Sizes are scaled to 1 so that both columns have like magnitudes.
  const auto count = static_cast<Eigen::Index>(oneWayTimes.size());
  double largest = 1;
  for (const auto& [bytes, time] : oneWayTimes) largest = std::max(largest, static_cast<double>(bytes));
  Eigen::MatrixXd a(count, 2);
  const Eigen::VectorXd ones = Eigen::VectorXd::Ones(count);
  for (Eigen::Index i = 0; i < count; ++i) {
    const auto& [bytes, time] = oneWayTimes[static_cast<std::size_t>(i)];
    const double t = static_cast<double>(std::max<Ns>(1, time));
    a(i, 0) = 1 / t;
    a(i, 1) = static_cast<double>(bytes) / largest / t;
  }
  const Eigen::Vector2d both = a.colPivHouseholderQr().solve(ones);
  double latency = both(0);
  double perLargest = both(1);
  // The sum is convex, so where the free optimum has a negative part the best allowed one has 0 there: the other is fitted alone.
  if (latency < 0) {
    latency = 0;
    perLargest = a.col(1).dot(ones) / a.col(1).squaredNorm();
  } else if (perLargest < 0) {
    perLargest = 0;
    latency = a.col(0).dot(ones) / a.col(0).squaredNorm();
  }
  return {static_cast<Ns>(std::llround(latency)), perLargest > 0 ? largest / perLargest * 1e9 : 0.0};
}

int nodeOf(const Topology& topology, JobRank rank) {
  if (!topology.ranks.empty()) return topology.ranks.at(rank.index()).node;
  return topology.ranksPerNode > 0 ? rank.value / topology.ranksPerNode : 0;
}

bool allAtFullSpeed(const Topology& topology) {
  return std::ranges::all_of(topology.ranks, [](const RankSpec& rank) { return rank.speed == 1 && !rank.own.exists(); });
}

const LinkSpec& linkBetween(const Topology& topology, JobRank a, JobRank b) {
  if (a == b) return kSameRank;
  for (const RankLink& link : topology.links) {
    if ((link.a == a && link.b == b) || (link.a == b && link.b == a)) return link.link;
  }
  return nodeOf(topology, a) == nodeOf(topology, b) ? topology.sameNode : topology.network;
}

std::string heterogeneityText(const Topology& topology, int ranks) {
  constexpr std::size_t kMostNamed = 4;
  std::set<int> nodes;
  std::vector<std::string> own;
  for (int r = 0; r < ranks; ++r) {
    nodes.insert(nodeOf(topology, JobRank(r)));
    if (topology.ranks.empty()) continue;
    const RankSpec& rank = topology.ranks.at(static_cast<std::size_t>(r));
    if (rank.own.exists())
      own.push_back(fmt::format("rank {} with the times of {}", r, std::filesystem::path(rank.own.file).filename().string()));
    if (rank.speed != 1) own.push_back(fmt::format("rank {} at {:g} times the speed", r, rank.speed));
    if (rank.memoryBytes > 0) own.push_back(fmt::format("rank {} with {}", r, formatSize(rank.memoryBytes)));
  }
  std::vector<std::string> parts;
  if (nodes.size() > 1) parts.push_back(fmt::format("on {} nodes", nodes.size()));
  const auto links = std::ranges::count_if(topology.links, [&](const RankLink& l) { return std::max(l.a, l.b).value < ranks; });
  for (std::size_t i = 0; i < std::min(own.size(), kMostNamed); ++i) parts.push_back(own[i]);
  if (own.size() > kMostNamed) parts.push_back(fmt::format("{} more", own.size() - kMostNamed));
  if (links > 0) parts.push_back(links == 1 ? "1 link of its own" : fmt::format("{} links of their own", links));
  return fmt::format("{}", fmt::join(parts, ", "));
}

Topology topologyOf(const Topology& topology, const std::vector<JobRank>& ranks) {
  Topology chosen = topology;
  chosen.ranks.clear();
  chosen.links.clear();
  for (const JobRank rank : ranks)
    chosen.ranks.push_back(topology.ranks.empty() ? RankSpec{1, 0, nodeOf(topology, rank)} : topology.ranks.at(rank.index()));
  const auto placeOf = [&](JobRank rank) { return std::ranges::find(ranks, rank) - ranks.begin(); };
  const auto count = static_cast<std::ptrdiff_t>(ranks.size());
  for (const RankLink& link : topology.links) {
    const auto a = placeOf(link.a), b = placeOf(link.b);
    if (a < count && b < count) chosen.links.push_back({JobRank(static_cast<int>(a)), JobRank(static_cast<int>(b)), link.link});
  }
  return chosen;
}

LinkSpec slowestHop(const Topology& topology, const std::vector<JobRank>& ring, Bytes bytes) {
  const auto linkAfter = [&](std::size_t i) { return linkBetween(topology, ring[i], ring[(i + 1) % ring.size()]); };
  LinkSpec slowest = linkAfter(0);
  const auto timeOf = [&](const LinkSpec& link) { return link.latency + transferTime(link, bytes); };
  for (std::size_t i = 1; i < ring.size(); ++i) {
    if (const LinkSpec link = linkAfter(i); timeOf(link) > timeOf(slowest)) slowest = link;
  }
  return slowest;
}

Ns ringTime(const LinkSpec& hop, Bytes bytes, std::int64_t holders) {
  return holders < 2 || bytes == 0 ? 0 : 2 * (holders - 1) * hop.latency + transferTime(hop, 2 * (holders - 1) * bytes / holders);
}

PipelineTopology::PipelineTopology(const Topology& topology, Replicas pipeline, int replicas, std::optional<int> only)
    : topology_(topology),
      pipeline_(pipeline),
      replicas_(replicas),
      distinct_(distinctReplicas(topology, pipeline.ranks, replicas)),
      only_(only) {}

std::vector<RankSpeed> PipelineTopology::speeds(Rank rank) const {
  std::vector<RankSpeed> speeds;
  if (topology_.ranks.empty()) return {RankSpeed{}};
  for (int d = only_.value_or(0); d < (only_ ? *only_ + 1 : replicas_); ++d) {
    const RankSpec& spec = topology_.ranks.at(pipeline_.jobRank(d, rank).index());
    const auto same = [&](const RankSpec& other) { return other.own == spec.own; };
    RankSpeed speed{-1, 1 / spec.speed};
    if (spec.own.exists()) speed.costsOf = static_cast<int>(std::ranges::find_if(topology_.ranks, same) - topology_.ranks.begin());
    const auto known = std::ranges::find(speeds, speed.costsOf, &RankSpeed::costsOf);
    if (known == speeds.end()) {
      speeds.push_back(speed);
    } else {
      known->slowness = std::max(known->slowness, speed.slowness);
    }
  }
  std::ranges::sort(speeds);
  return speeds;
}

PipelineTopology::MessageTime PipelineTopology::message(Rank a, Rank b, Bytes bytes) const {
  MessageTime slowest;
  const int first = only_.value_or(0);
  for (int d = first; d < (only_ ? first + 1 : distinct_); ++d) {
    const LinkSpec& link = linkBetween(topology_, pipeline_.jobRank(d, a), pipeline_.jobRank(d, b));
    const MessageTime time{link.latency, transferTime(link, bytes)};
    if (d == first || time.latency + time.transfer > slowest.latency + slowest.transfer) slowest = time;
  }
  return slowest;
}

Bytes PipelineTopology::memory(Rank rank) const {
  Bytes least = 0;
  for (int d = 0; d < replicas_ && !topology_.ranks.empty(); ++d) {
    const Bytes own = topology_.ranks.at(pipeline_.jobRank(d, rank).index()).memoryBytes;
    if (own > 0 && (least == 0 || own < least)) least = own;
  }
  return least;
}

LinkSpec PipelineTopology::ringHop(const std::vector<Rank>& ranks, Bytes bytes) const {
  const std::size_t held = ranks.size(), holders = held * static_cast<std::size_t>(replicas_);
  const auto holder = [&](std::size_t i) { return pipeline_.jobRank(static_cast<int>(i / held), ranks[i % held]); };
  LinkSpec slowest = topology_.sameNode;
  Ns longest = -1;
  const auto hop = [&](std::size_t i) {
    const LinkSpec& link = linkBetween(topology_, holder(i), holder((i + 1) % holders));
    const Ns time = link.latency + transferTime(link, bytes);
    if (time > longest) slowest = link;
    longest = std::max(longest, time);
  };
  if (holders < 2) return slowest;
  for (std::size_t i = 0; i < std::min(holders - 1, held * static_cast<std::size_t>(distinct_)); ++i) hop(i);
  hop(holders - 1);
  return slowest;
}

bool PipelineTopology::areAlike(Rank a, Rank b) const {
  for (int d = 0; d < replicas_; ++d) {
    const JobRank one = pipeline_.jobRank(d, a), other = pipeline_.jobRank(d, b);
    if (!topology_.ranks.empty() && topology_.ranks.at(one.index()) != topology_.ranks.at(other.index())) return false;
    if (nodeOf(topology_, one) != nodeOf(topology_, other)) return false;
    const bool hasOwnLinks =
        std::ranges::any_of(topology_.links, [&](const RankLink& l) { return l.a == one || l.b == one || l.a == other || l.b == other; });
    for (int e = 0; e < replicas_ && hasOwnLinks; ++e) {
      for (int r = 0; r < pipeline_.ranks; ++r) {
        const Rank third(r), exchanged = third == a ? b : third == b ? a : third;
        if (linkBetween(topology_, one, pipeline_.jobRank(e, third)) != linkBetween(topology_, other, pipeline_.jobRank(e, exchanged)))
          return false;
      }
    }
  }
  return true;
}

bool PipelineTopology::orderMatters() const {
  if (topology_.ranks.empty() && topology_.links.empty()) return false;  // nodes one after the other: their order is the best
  for (int r = 1; r < pipeline_.ranks; ++r) {
    if (!areAlike(Rank(0), Rank(r))) return true;
  }
  return false;
}

}  // namespace pw
