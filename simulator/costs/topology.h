#pragma once

#include <string>
#include <utility>
#include <vector>

#include "schedules/job_rank.h"

namespace pw {

/// A connection between two ranks: a message of n bytes arrives `latency` + n / bytesPerSecond after it starts, and
/// holds the channel for n / bytesPerSecond.
struct LinkSpec {
  Ns latency = 0;
  double bytesPerSecond = 0;  ///< 0: transfers cost nothing but the latency
  bool duplex = true;

  bool operator==(const LinkSpec&) const = default;
};

/// How long `bytes` hold the channel: n / bytesPerSecond to the nearest ns, without the latency; 0 for a free link.
[[nodiscard]] Ns transferTime(const LinkSpec& link, Bytes bytes);

/// Least-squares fit of latency and bandwidth to measured one-way times. Needs two different sizes. Relative residuals are
/// minimised, so that small messages count as much as large ones; neither result is negative (exact for the two unknowns).
/// Throws UsageError without two different sizes.
[[nodiscard]] LinkSpec fitLink(const std::vector<std::pair<Bytes, Ns>>& oneWayTimes);

/// One rank of a job whose ranks differ.
struct RankSpec {
  double speed = 1;       ///< of its computation, relative to the costs of the profile: at 0.5 everything takes twice as long
  Bytes memoryBytes = 0;  ///< 0: no limit of its own
  int node = 0;

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
/// As a fraction of the speed that the costs are of. Throws likewise.
[[nodiscard]] double speedOf(const Topology& topology, JobRank rank);
/// Whether all ranks compute at the speed that the costs are of.
[[nodiscard]] bool allAtFullSpeed(const Topology& topology);
/// Of two different ranks. Cost: linear in `links`.
[[nodiscard]] const LinkSpec& linkBetween(const Topology& topology, JobRank a, JobRank b);

/// What is not the same everywhere among the first `ranks`: `on 2 nodes, rank 3 at 0.8 times the speed, rank 5 with 37.3 GiB`; empty where
/// nothing is.
[[nodiscard]] std::string heterogeneityText(const Topology& topology, int ranks);

/// Of a job of so many ranks, which takes the first ones of the list: `rank 4 of the cluster is not used, and is faster than rank 0; list
/// the ranks first that the job is to use`; empty where no rank beyond them is faster than one of them.
[[nodiscard]] std::string unusedRanksText(const Topology& topology, int ranks);

/// These ranks alone, in this order, with the links between them. Throws std::out_of_range for a rank beyond `ranks`, where there are any.
[[nodiscard]] Topology topologyOf(const Topology& topology, const std::vector<JobRank>& ranks);

/// What replicas of a pipeline find on a topology. Replicas wait for each other whenever they sum gradients, so at each place of the
/// pipeline the slowest of them counts: an upper bound of the step where it is not the same replica everywhere. Keeps a reference to the
/// topology, which must outlive it.
class PipelineTopology {
 public:
  PipelineTopology(const Topology& topology, Replicas pipeline, int replicas);

  /// By how much the computation of a rank takes longer than its costs say.
  [[nodiscard]] double slowness(Rank rank) const;
  /// Of a message between two different ranks: the latency, and how long it occupies the channel [ns].
  struct MessageTime {
    Ns latency = 0, transfer = 0;
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
  int distinct_;  ///< replicas from this one on find what earlier ones do
};

}  // namespace pw
