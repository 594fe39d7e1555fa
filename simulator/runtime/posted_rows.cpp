#include "simulator/runtime/posted_rows.h"

#include <algorithm>
#include <utility>

#include "schedules/lower.h"

namespace pw {

void append(RuntimeRows& result, PostedRow&& row) {
  result.rows.rows.push_back(std::move(row.row));
  result.posting.joined.push_back(std::move(row.joined));
  result.posting.waits.push_back(std::move(row.waits));
}

void keepReductions(RuntimeRows& result, const Schedule& of) {
  const auto reduces = [](const Schedule& schedule) {
    return std::ranges::any_of(schedule.rows,
                               [](const auto& row) { return std::ranges::find(row, ActionKind::ReduceGrad, &Action::kind) != row.end(); });
  };
  if (!reduces(of) || reduces(result.rows)) return;
  const Schedule with = withReductions(result.rows);
  for (std::size_t r = 0; r < with.rows.size(); ++r) {
    std::vector<std::size_t> moved;  // by old position
    std::vector<bool> joined(with.rows[r].size(), false);
    for (std::size_t at = 0; at < with.rows[r].size(); ++at) {
      if (with.rows[r][at].kind == ActionKind::ReduceGrad) continue;
      joined[at] = result.posting.joined[r][moved.size()];
      moved.push_back(at);
    }
    moved.push_back(with.rows[r].size());
    for (Posting::Wait& wait : result.posting.waits[r]) wait = {moved[wait.before], moved[wait.message]};
    result.posting.joined[r] = std::move(joined);
  }
  result.rows = with;
}

}  // namespace pw
