#include "app/gui/document/run_name.h"

#include <QDateTime>
#include <QLocale>

#include "app/gui/common/format.h"
#include "backends/store/run_store.h"

namespace pw::gui {

RunName runNameOf(const RunRecord& run) { return {run.id, run.startedAt}; }

bool isRun(const RunName& name, RunId id, const std::string& startedAt) {
  return name.id == id && (name.startedAt.empty() || name.startedAt == startedAt);
}

QString titleOf(const RunName& run) {
  const QString number = translated("run %1").arg(run.id.value);
  return run.startedAt.empty() ? number : QStringLiteral("%1 · %2").arg(number, whenOf(run.startedAt));
}

QString whenOf(const std::string& startedAt) {
  const QDateTime utc = QDateTime::fromString(QString::fromStdString(startedAt), Qt::ISODate);
  if (!utc.isValid()) return QString::fromStdString(startedAt);
  const QDateTime local = utc.toLocalTime();
  return QLocale().toString(
      local, local.date().year() == QDate::currentDate().year() ? QStringLiteral("d MMM HH:mm") : QStringLiteral("d MMM yyyy HH:mm"));
}

}  // namespace pw::gui
