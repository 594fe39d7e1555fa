#include "app/gui/timeline/overview/groups.h"

#include "app/gui/common/format.h"

namespace pw::gui {

std::vector<QString> groupsOf(std::size_t ranks, std::size_t pipeline, const Topology& topology) {
  if (!topology.ranks.empty() && topology.ranks.size() < ranks) return {};  // a cluster for another job
  const auto node = [&](std::size_t r) { return nodeOf(topology, JobRank(static_cast<std::int32_t>(r))); };
  bool hasNodes = false;
  for (std::size_t r = 1; r < ranks; ++r) hasNodes = hasNodes || node(r) != node(0);
  const bool hasReplicas = pipeline > 0 && ranks > pipeline && ranks % pipeline == 0;
  if (!hasNodes && !hasReplicas) return {};
  std::vector<QString> names;
  for (std::size_t r = 0; r < ranks; ++r) {
    const QString replica = hasReplicas ? translated("replica %1").arg(r / pipeline) : QString();
    const QString host = hasNodes ? translated("node %1").arg(node(r)) : QString();
    names.push_back(hasNodes && hasReplicas ? replica + QStringLiteral(", ") + host : replica + host);
  }
  return names;
}

}  // namespace pw::gui
