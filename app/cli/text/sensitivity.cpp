#include "app/cli/text/sensitivity.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "app/cli/text/output.h"
#include "simulator/text/json_text.h"

namespace pw::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kBar = 20;  ///< columns of the longest bar to one side

std::string bar(double share) {
  std::string text;
  for (int i = 0; i < static_cast<int>(std::lround(kBar * share)); ++i) text += "█";
  return text;
}

}  // namespace

std::string sensitivityText(const SensitivityReport& report) {
  const auto relative = [&](Ns time) {
    return report.makespan > 0 ? static_cast<double>(time - report.makespan) / static_cast<double>(report.makespan) : 0;
  };
  double most = 0;
  for (const Sensitivity& s : report.all) most = std::max({most, -relative(s.faster), relative(s.slower)});
  std::vector<std::vector<std::string>> rows{{"takes", fmt::format("{:.3g} % less", 100 * report.change), "", "",
                                              fmt::format("{:.3g} % more", 100 * report.change), "of the critical path"}};
  for (const Sensitivity& s : report.all) {
    const std::string left = bar(most > 0 ? std::max(0.0, -relative(s.faster)) / most : 0);
    const std::string right = bar(most > 0 ? std::max(0.0, relative(s.slower)) / most : 0);
    const auto columns = static_cast<int>(left.size() / std::string_view("█").size());
    rows.push_back({nameOf(s.of), signedPercent(relative(s.faster)), std::string(static_cast<std::size_t>(kBar - columns), ' ') + left,
                    right, signedPercent(relative(s.slower)),
                    percent(report.makespan > 0 ? static_cast<double>(s.onPath) / static_cast<double>(report.makespan) : 0)});
  }
  std::string text = table(rows);
  for (const LimitSensitivity& limit : report.limits) {
    const auto change = [&](Ns time) {
      return signedPercent(limit.now > 0 ? static_cast<double>(time - limit.now) / static_cast<double>(limit.now) : 0);
    };
    text += fmt::format("limit of {}: {:.3g} % more: {}; {:.3g} % less: {}\n",
                        limit.rank ? fmt::format("rank {}", limit.rank->value) : "all ranks", 100 * report.change, change(limit.more),
                        100 * report.change, limit.less ? change(*limit.less) : "nothing fits");
  }
  return text;
}

std::string withSensitivity(const std::string& document, const SensitivityReport& report) {
  Json all = Json::array();
  for (const Sensitivity& s : report.all) {
    Json one;
    if (const auto* stage = std::get_if<Stage>(&s.of)) {
      one["stage"] = stage->value;
    } else {
      one["link"] = {std::get<RankPair>(s.of).low.value, std::get<RankPair>(s.of).high.value};
    }
    one["on_path_ns"] = s.onPath;
    one["faster_makespan_ns"] = s.faster;
    one["slower_makespan_ns"] = s.slower;
    all.push_back(one);
  }
  Json json = ownJson(document);
  Json limits = Json::array();
  for (const LimitSensitivity& limit : report.limits) {
    limits.push_back({{"rank", limit.rank ? Json(limit.rank->value) : Json()},
                      {"time_ns", limit.now},
                      {"more_memory_time_ns", limit.more},
                      {"less_memory_time_ns", limit.less ? Json(*limit.less) : Json()}});
  }
  json["sensitivity"] = {{"change", report.change}, {"of", all}, {"limits", limits}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace pw::cli
