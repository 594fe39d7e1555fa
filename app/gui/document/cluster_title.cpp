#include "app/gui/document/cluster_title.h"

#include <QCoreApplication>
#include <QFileInfo>

#include "backends/resources/resources.h"
#include "schedules/error.h"
#include "simulator/costs/cluster_name.h"

namespace pw::gui {

QString clusterTitle(const std::string& nameOrFile) {
  if (!isClusterText(nameOrFile)) return QFileInfo(QString::fromStdString(nameOrFile)).fileName();
  try {
    return QCoreApplication::translate("pw::gui::Cluster", "%1 (edited)").arg(QString::fromStdString(loadCluster(nameOrFile).name));
  } catch (const Error&) {
    return QCoreApplication::translate("pw::gui::Cluster", "an edited cluster");  // that cannot be read, which the prediction says
  }
}

}  // namespace pw::gui
