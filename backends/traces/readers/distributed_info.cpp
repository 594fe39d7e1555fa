#include "backends/traces/readers/distributed_info.h"

#include <cstdint>
#include <string_view>
#include <utility>

#include <simdjson.h>

namespace pw {

void readDistributedInfo(const std::string& text, FileEvents& file) {
  constexpr std::size_t kMostGroups = 10'000, kMostMembers = 1'000'000;
  simdjson::dom::parser parser;
  simdjson::dom::element info;
  if (parser.parse(text).get(info) != simdjson::SUCCESS) return;
  std::int64_t rank = -1;
  if (info["rank"].get(rank) == simdjson::SUCCESS && rank >= 0 && rank < (std::int64_t{1} << 31))
    file.rank = JobRank(static_cast<std::int32_t>(rank));
  std::int64_t size = 0;
  if (info["world_size"].get(size) == simdjson::SUCCESS && size > 0 && size < (std::int64_t{1} << 31)) file.worldSize = size;
  simdjson::dom::array groups;
  if (info["pg_config"].get(groups) != simdjson::SUCCESS) return;
  std::size_t members = 0;
  for (const simdjson::dom::element element : groups) {
    simdjson::dom::array ranks;
    std::string_view name;
    if (element["ranks"].get(ranks) != simdjson::SUCCESS || file.groups.size() >= kMostGroups) continue;
    if (element["pg_desc"].get(name) != simdjson::SUCCESS) name = {};
    RankGroup group{std::string(name), {}};
    for (const simdjson::dom::element member : ranks) {
      std::int64_t number = 0;
      if (member.get(number) != simdjson::SUCCESS || ++members >= kMostMembers) continue;
      const bool fits = number >= 0 && number < (std::int64_t{1} << 31);
      group.ranks.emplace_back(fits ? static_cast<std::int32_t>(number) : -1);  // −1: no rank of ours
    }
    file.groups.push_back(std::move(group));
  }
}

}  // namespace pw
