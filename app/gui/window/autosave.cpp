#include "app/gui/window/autosave.h"

#include <signal.h>

#include <QCoreApplication>
#include <QDateTime>
#include <QDir>
#include <QStandardPaths>
#include <cerrno>

#include "app/gui/document/project.h"
#include "backends/host/files.h"
#include "schedules/error.h"

namespace pw::gui {
namespace {

QDir folder() {
  QDir dir(QStandardPaths::writableLocation(QStandardPaths::AppDataLocation) + QStringLiteral("/autosave"));
  dir.mkpath(QStringLiteral("."));
  return dir;
}

bool isAlive(qint64 process) { return ::kill(static_cast<pid_t>(process), 0) == 0 || errno == EPERM; }

}  // namespace

QString autosavePath() { return folder().filePath(QString::number(QCoreApplication::applicationPid()) + QStringLiteral(".pwproj")); }

QStringList leftBehind() {
  QStringList found;
  for (const QFileInfo& file : folder().entryInfoList({QStringLiteral("*.pwproj")}, QDir::Files, QDir::Time)) {
    bool isNumber = false;
    const qint64 process = file.completeBaseName().toLongLong(&isNumber);
    if (isNumber && process > 0 && !isAlive(process)) found << file.filePath();
  }
  return found;
}

QString unsavedPlan(const QString& path) {
  const QString time = QFileInfo(path).lastModified().toString(QStringLiteral("HH:mm"));
  try {
    const Design design = parseProject(readFile(path.toStdString()), path.toStdString()).design;
    const std::string& source = design.models.empty() ? design.source : design.models.front();
    if (!source.empty()) return QStringLiteral("of %1 (%2)").arg(QFileInfo(QString::fromStdString(source)).completeBaseName(), time);
  } catch (const Error&) {
    // opening it says what is wrong
  }
  return QStringLiteral("(%1)").arg(time);
}

}  // namespace pw::gui
