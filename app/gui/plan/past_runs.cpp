#include "app/gui/plan/past_runs.h"

#include <QRegularExpression>

namespace pw::gui {

bool isOfCpus(const Cluster& cluster) {
  static const QRegularExpression cpu(QStringLiteral(R"(\b(cpus?|cores?|sockets?|epyc|ryzen|threadripper|xeon|graviton|altra)\b)"),
                                      QRegularExpression::CaseInsensitiveOption);
  static const QRegularExpression gpu(QStringLiteral(R"(gpu|tensor core)"), QRegularExpression::CaseInsensitiveOption);
  const QString name = QString::fromStdString(cluster.deviceName);
  return cluster.cudaName.empty() && cpu.match(name).hasMatch() && !gpu.match(name).hasMatch();
}

PastRuns::PastRuns(const std::vector<RunSummary>& runs) {
  for (const RunSummary& run : runs) {
    if (run.transport) (factsOf(*run.transport).onGpu ? onGpus_ : onCpus_).push_back(run);
  }
}

const std::vector<RunSummary>& PastRuns::onLikeDevices(const Profile& profile, const Cluster& cluster) const {
  const bool onGpu = profile.estimated ? !isOfCpus(cluster) : profile.computing.onGpu;
  return onGpu ? onGpus_ : onCpus_;
}

}  // namespace pw::gui
