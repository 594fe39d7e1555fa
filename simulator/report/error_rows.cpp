#include "simulator/report/error_rows.h"

#include "schedules/units.h"
#include "simulator/report/verdict.h"
#include "simulator/text/percent.h"

namespace pw {
namespace {

std::string timeOrNone(Ns time) { return time == 0 ? "–" : formatDuration(time); }

}  // namespace

std::string errorText(Ns before, Ns after) {
  return before > 0 && after > 0 ? signedPercent(static_cast<double>(after - before) / static_cast<double>(before)) : "–";
}

std::vector<std::vector<std::string>> errorRows(const std::vector<GroupError>& groups, bool sendsCompare) {
  Ns all = 0;
  for (const GroupError& group : groups) all += group.contribution;
  std::vector<std::vector<std::string>> rows;
  for (const GroupError& group : sortedByContribution(groups)) {
    const bool compares = sendsCompare || !group.group.starts_with("SEND_");
    const bool contributes = all > 0 && group.contribution > 0;
    rows.push_back({group.group, timeOrNone(group.predicted), timeOrNone(group.measured),
                    compares ? errorText(group.predicted, group.measured) : "–", formatDuration(group.measured - group.predicted),
                    contributes ? percent(static_cast<double>(group.contribution) / static_cast<double>(all)) : "–"});
  }
  return rows;
}

}  // namespace pw
