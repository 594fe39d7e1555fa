#include "app/gui/window/autosave.h"

#include <fcntl.h>
#include <sys/file.h>

#include <QCoreApplication>
#include <QDateTime>
#include <QDir>
#include <QFile>
#include <QMessageBox>
#include <QPushButton>
#include <QStandardPaths>

#include "app/gui/document/project.h"
#include "backends/host/fd.h"
#include "backends/host/files.h"
#include "schedules/error.h"

namespace pw::gui {
namespace {

const QString kProject = QStringLiteral(".pwproj"), kLock = QStringLiteral(".lock");

QDir folder() {
  QDir dir(QStandardPaths::writableLocation(QStandardPaths::AppDataLocation) + QStringLiteral("/autosave"));
  dir.mkpath(QStringLiteral("."));
  return dir;
}

/// The lock file beside a project that is kept.
QString lockOf(const QString& project) { return project.chopped(kProject.size()) + kLock; }

/// flock(2): released by the system when the process ends, however it ends. Children of the process do not hold it.
Fd locked(const QString& path, int flags) {
  Fd fd(::open(QFile::encodeName(path).constData(), flags | O_RDWR | O_CLOEXEC, 0600));
  if (fd.get() >= 0 && ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) return {};
  return fd;
}

/// A name that no other process has had, and its lock.
struct Own {
  QString path = folder().filePath(
      QStringLiteral("%1-%2").arg(QCoreApplication::applicationPid()).arg(QDateTime::currentMSecsSinceEpoch()) + kProject);
  Fd lock = locked(lockOf(path), O_CREAT);

  Own() = default;
  ~Own() { QFile::remove(lockOf(path)); }
  Own(const Own&) = delete;
  Own& operator=(const Own&) = delete;
};

}  // namespace

QString autosavePath() {
  static const Own own;
  return own.path;
}

QStringList leftBehind() {
  QStringList found;
  for (const QFileInfo& file : folder().entryInfoList({QStringLiteral("*") + kProject}, QDir::Files, QDir::Time)) {
    const QString path = file.filePath();
    if (path == autosavePath()) continue;
    const bool isHeld = QFile::exists(lockOf(path)) && locked(lockOf(path), 0).get() < 0;
    if (!isHeld) found << path;
  }
  return found;
}

void forget(const QString& path) {
  QFile::remove(path);
  QFile::remove(lockOf(path));
}

QString unsavedPlan(const QString& path) {
  const QDateTime changed = QFileInfo(path).lastModified();
  const bool isToday = changed.date() == QDate::currentDate();
  const QString time = changed.toString(isToday ? QStringLiteral("HH:mm") : QStringLiteral("d MMM yyyy, HH:mm"));
  try {
    const Project project = parseProject(readFile(path.toStdString()), path.toStdString());
    const Design& design = project.design;
    const bool hasPlan = !design.models.empty() || !design.source.empty() || project.job != JobOptions();
    const QString title = project.unsaved ? project.unsaved->title : QString();
    if (project.unsaved && !hasPlan && title.isEmpty()) return QObject::tr("unsaved notes (%1)").arg(time);
    if (project.unsaved && !hasPlan) return QObject::tr("unsaved notes on %1 (%2)").arg(title, time);
    if (!title.isEmpty()) return QObject::tr("unsaved plan of %1 (%2)").arg(title, time);
    const std::string& source = design.models.empty() ? design.source : design.models.front();
    if (!source.empty())
      return QObject::tr("unsaved plan of %1 (%2)").arg(QFileInfo(QString::fromStdString(source)).completeBaseName(), time);
  } catch (const Error&) {
    // opening it says what is wrong
  }
  return QObject::tr("unsaved plan (%1)").arg(time);
}

Recovery askRecovery(const QString& path, QWidget& window) {
  QMessageBox box(QMessageBox::Question, QObject::tr("Recover"), QObject::tr("Restore the %1?").arg(unsavedPlan(path)),
                  QMessageBox::Yes | QMessageBox::No | QMessageBox::Cancel, &window);
  box.button(QMessageBox::Yes)->setText(QObject::tr("&Restore"));
  box.button(QMessageBox::No)->setText(QObject::tr("&Discard"));
  box.button(QMessageBox::Cancel)->setText(QObject::tr("Not &now"));
  box.setDefaultButton(QMessageBox::Yes);
  box.setEscapeButton(QMessageBox::Cancel);
  const int answer = box.exec();
  return answer == QMessageBox::Yes ? Recovery::Restore : answer == QMessageBox::No ? Recovery::Discard : Recovery::Later;
}

}  // namespace pw::gui
