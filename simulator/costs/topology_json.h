#pragma once

// Internal to the files of this room: how topologies are written in clusters and profiles.

#include <cstdint>
#include <initializer_list>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "simulator/costs/topology.h"
#include "simulator/text/json_part.h"

namespace pw {

/// Limits of what a cluster file says.
inline constexpr std::int64_t kMostBytes = std::int64_t{1} << 60;
inline constexpr std::int64_t kMostLatency = 1'000'000'000'000;  ///< [ns]

[[nodiscard]] nlohmann::ordered_json linkJson(const LinkSpec& link);
[[nodiscard]] LinkSpec linkIn(const JsonPart& link);
/// Fails where `duplex` is false: a channel for each direction is all that is simulated.
void requireDuplex(const JsonPart& link);

/// Fails where an object has other members than these: a misspelt one would otherwise be as if it were not there.
void requireMembers(const JsonPart& part, std::initializer_list<std::string_view> known);

/// A number from 0 to `most`.
[[nodiscard]] double numberIn(const JsonPart& part, double most);
/// Bytes or operations per second; 0 where nothing is known.
[[nodiscard]] double rateIn(const JsonPart& part);

/// Ranks in order, consecutive equal ones as one entry with their `count`.
[[nodiscard]] nlohmann::ordered_json ranksJson(const Topology& topology);
/// `topology` gives the ranks per node, for ranks that name no node. Profiles of their own are named, not read.
[[nodiscard]] std::vector<RankSpec> ranksIn(const JsonPart& list, const Topology& topology);

[[nodiscard]] nlohmann::ordered_json rankLinksJson(const std::vector<RankLink>& links);
/// `ranks`: how many there are; 0: any number.
[[nodiscard]] std::vector<RankLink> rankLinksIn(const JsonPart& list, std::size_t ranks);

}  // namespace pw
