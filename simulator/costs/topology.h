#pragma once

#include <compare>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "schedules/job_rank.h"

namespace pw {

struct Profile;

/// A connection between two ranks: a message of n bytes arrives `latency` + n / bytesPerSecond after it starts, and holds the channel of
/// its direction for n / bytesPerSecond.
struct LinkSpec {
  Ns latency = 0;
  double bytesPerSecond = 0;  ///< 0: transfers cost nothing but the latency

  bool operator==(const LinkSpec&) const = default;
};

/// How long `bytes` hold the channel: n / bytesPerSecond to the nearest ns, without the latency; 0 for a free link.
[[nodiscard]] Ns transferTime(const LinkSpec& link, Bytes bytes);

/// Least-squares fit of latency and bandwidth to measured one-way times. Needs two different sizes. Relative residuals are
/// minimised, so that small messages count as much as large ones; neither result is negative (exact for the two unknowns).
/// Throws UsageError without two different sizes.
[[nodiscard]] LinkSpec fitLink(const std::vector<std::pair<Bytes, Ns>>& oneWayTimes);

/// Costs of a device that is not that of the other ranks, of the same model.
struct RankProfile {
  std::string file;                      ///< they are from; empty: none
  std::shared_ptr<const Profile> costs;  ///< null where there are none, or the file has not been read

  [[nodiscard]] bool exists() const { return !file.empty(); }
};
/// By what they hold.
[[nodiscard]] bool operator==(const RankProfile& a, const RankProfile& b);

/// One rank of a job whose ranks differ.
struct RankSpec {
  double speed = 1;       ///< of its computation, relative to its costs: at 0.5 everything takes twice as long
  Bytes memoryBytes = 0;  ///< 0: no limit of its own
  int node = 0;
  RankProfile own = {};  ///< whose times it has instead of the profile's; its bytes are the profile's

  bool operator==(const RankSpec&) const = default;
};

/// A link between two ranks that is not as that of their nodes, in both directions.
struct RankLink {
  JobRank a, b;
  LinkSpec link;

  bool operator==(const RankLink&) const = default;
};

/// Where the ranks of a job are, what each can do, and how they are connected.
struct Topology {
  LinkSpec sameNode;            ///< latency 0 and bandwidth 0 where it was not measured
  LinkSpec network;             ///< between nodes
  int ranksPerNode = 0;         ///< in the order of their numbers, where `ranks` is empty; 0: all in one node
  std::vector<RankSpec> ranks;  ///< empty: all alike
  std::vector<RankLink> links;

  bool operator==(const Topology&) const = default;
};

/// Throws std::out_of_range for a rank beyond `ranks`, where there are any.
[[nodiscard]] int nodeOf(const Topology& topology, JobRank rank);
/// Whether all ranks compute at the speed that the costs are of, and have none of their own.
[[nodiscard]] bool allAtFullSpeed(const Topology& topology);
/// Of two different ranks. Cost: linear in `links`.
[[nodiscard]] const LinkSpec& linkBetween(const Topology& topology, JobRank a, JobRank b);

/// What is not the same everywhere among the first `ranks`: `on 2 nodes, rank 3 at 0.8 times the speed, rank 5 with 37.3 GiB`; empty where
/// nothing is.
[[nodiscard]] std::string heterogeneityText(const Topology& topology, int ranks);

/// These ranks alone, in this order, with the links between them. Throws std::out_of_range for a rank beyond `ranks`, where there are any.
[[nodiscard]] Topology topologyOf(const Topology& topology, const std::vector<JobRank>& ranks);

/// How a rank computes.
struct RankSpeed {
  int costsOf = -1;     ///< the first rank of the topology's list with the same costs of their own; −1: the profile's
  double slowness = 1;  ///< by how much longer it takes than these say

  auto operator<=>(const RankSpeed&) const = default;
};
/// By stage: how the ranks compute that it is on in the replicas, those that differ. Empty: all stages are at full speed.
using StageSpeeds = std::vector<std::vector<RankSpeed>>;

/// The slowest hop of a ring over these ranks, in this order, for messages of so many bytes; at least two ranks.
[[nodiscard]] LinkSpec slowestHop(const Topology& topology, const std::vector<JobRank>& ring, Bytes bytes);
/// Reduce-scatter and all-gather in a ring (Patarasuk and Yuan, 2009): each of 2 (D − 1) rounds passes on a D-th of the bytes, and takes as
/// long as its slowest hop. 0 for fewer than two holders.
[[nodiscard]] Ns ringTime(const LinkSpec& hop, Bytes bytes, std::int64_t holders);

/// Speeds, links and memory that the replicas of a pipeline have on a topology: at each place of the pipeline those of the slowest replica,
/// or of a single one. Keeps a reference to the topology, which must outlive it.
class PipelineTopology {
 public:
  /// `only`: the replica whose speeds and messages alone count; memory and rings are of all.
  PipelineTopology(const Topology& topology, Replicas pipeline, int replicas, std::optional<int> only = {});

  /// Replicas from this one on find what earlier ones do; 1 where all are alike.
  [[nodiscard]] int distinct() const { return distinct_; }
  /// Of the replicas that count, without those that surely are no slower than another.
  [[nodiscard]] std::vector<RankSpeed> speeds(Rank rank) const;
  /// Of a message between two different ranks: the latency, and how long it occupies the channel [ns].
  struct MessageTime {
    Ns latency = 0, transfer = 0;

    bool operator==(const MessageTime&) const = default;
  };
  [[nodiscard]] MessageTime message(Rank a, Rank b, Bytes bytes) const;
  /// Memory of a rank of its own; 0: none.
  [[nodiscard]] Bytes memory(Rank rank) const;
  /// The slowest hop of a ring over these ranks of all replicas, for messages of so many bytes.
  [[nodiscard]] LinkSpec ringHop(const std::vector<Rank>& ranks, Bytes bytes) const;
  /// Whether the pipeline's costs differ with the order of its ranks.
  [[nodiscard]] bool orderMatters() const;
  /// Whether exchanging two ranks changes nothing.
  [[nodiscard]] bool areAlike(Rank a, Rank b) const;

 private:
  const Topology& topology_;
  Replicas pipeline_;
  int replicas_;
  int distinct_;
  std::optional<int> only_;
};

}  // namespace pw
