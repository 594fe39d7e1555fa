#include "app/cli/not_counted.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace pw::cli {

std::string notCountedJson(const std::vector<NotCounted>& list) {
  auto json = nlohmann::ordered_json::array();
  for (const NotCounted& one : list) json.push_back({{"op", one.op}, {"module", one.module}, {"count", one.count}, {"why", one.why}});
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string incompleteLine(const std::vector<NotCounted>& list, bool estimated) {
  if (list.empty()) return {};
  return fmt::format("\n{}: {}\n", words(list),
                     estimated ? "the times above are incomplete, estimated without these operators; measure a profile for complete times"
                               : "FLOPs do not include these; measured times do");
}

}  // namespace pw::cli
