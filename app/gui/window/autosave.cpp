#include "app/gui/window/autosave.h"

#include <signal.h>

#include <QCoreApplication>
#include <QDir>
#include <QStandardPaths>
#include <cerrno>

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

}  // namespace pw::gui
