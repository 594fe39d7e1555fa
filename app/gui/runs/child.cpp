#include "app/gui/runs/child.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <QCoreApplication>
#include <QFileInfo>
#include <QJsonObject>
#include <QProcess>
#include <QTimer>

#include <csignal>

#include "app/gui/common/json_object.h"
#include "backends/host/installation.h"

namespace pw::gui {
namespace {

constexpr qsizetype kMostOutput = qsizetype{16} << 20;
constexpr qsizetype kLongestLine = qsizetype{64} << 10;
constexpr int kGoodbyeMs = 1000;

}  // namespace

struct Child::Private {
  explicit Private(Child& c) : owner(c) {}

  Child& owner;
  QProcess process;
  QTimer patience;
  QByteArray output, line;
  QString sentence;     // last line on stderr that is no progress
  bool isOurs = false;  // it began with the program's name
  bool active = false, cancelled = false, terminated = false;
  int firmMs = 3000, killMs = 2000;
  int signal = 0;  // that we sent last
  qint64 pid = 0;

  void readOutput();
  void readComplaints();
  void takeLine(const QByteArray& text);
  void end(bool ok, int status, const QString& fallback);
  void send(int number) {
    signal = number;
    if (pid > 0) ::kill(static_cast<pid_t>(number == SIGKILL ? -pid : pid), number);  // the last resort is for its children too
  }
};

Child::Child(QObject* parent) : QObject(parent), d(std::make_unique<Private>(*this)) {
  QProcess& process = d->process;
  process.setStandardInputFile(QProcess::nullDevice());
  const pid_t parentPid = ::getpid();
  process.setChildProcessModifier([parentPid] {
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parentPid) ::_exit(1);  // we died before the line above
    // Our signals must reach it, however we were started (nohup ignores SIGINT).
    for (const int number : {SIGINT, SIGTERM}) std::signal(number, SIG_DFL);
    sigset_t none;
    sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
  });
  d->patience.setSingleShot(true);
  connect(&d->patience, &QTimer::timeout, this, [this] {
    if (d->signal == SIGINT) {
      d->send(SIGTERM);
      d->patience.start(d->killMs);
    } else {
      d->send(SIGKILL);
    }
  });
  connect(&process, &QProcess::readyReadStandardOutput, this, [this] { d->readOutput(); });
  connect(&process, &QProcess::readyReadStandardError, this, [this] { d->readComplaints(); });
  connect(&process, &QProcess::started, this, [this] { d->pid = d->process.processId(); });
  connect(&process, &QProcess::errorOccurred, this, [this](QProcess::ProcessError error) {
    if (error != QProcess::FailedToStart) return;  // the others are followed by `finished`
    d->end(false, -1, tr("Cannot start %1 (%2); install it next to this app.").arg(d->process.program(), d->process.errorString()));
  });
  connect(&process, &QProcess::finished, this, [this](int status, QProcess::ExitStatus how) {
    d->readOutput();
    d->readComplaints();
    if (!d->line.isEmpty()) d->takeLine(std::exchange(d->line, {}));
    if (how == QProcess::CrashExit)
      return d->end(
          false, -1,
          tr("%1 was ended by a signal; when memory runs out, use smaller microbatches.").arg(QFileInfo(d->process.program()).fileName()));
    d->end(status == 0, status,
           tr("%1 ended with status %2 without giving a reason.").arg(QFileInfo(d->process.program()).fileName()).arg(status));
  });
}

Child::~Child() {
  if (!d->active) return;
  d->process.disconnect(this);
  d->send(SIGINT);
  if (d->process.waitForFinished(kGoodbyeMs)) return;
  d->send(SIGKILL);
  d->process.waitForFinished(kGoodbyeMs);
}

QString Child::program() {
  const QFileInfo beside(QCoreApplication::applicationDirPath() + QStringLiteral("/pipewright"));
  if (beside.isExecutable() && beside.isFile()) return beside.absoluteFilePath();
  return qEnvironmentVariable("PIPEWRIGHT");
}

bool Child::isRunning() const { return d->active; }

qint64 Child::processId() const { return d->active ? d->pid : 0; }

void Child::start(const QString& program, const QStringList& arguments) {
  Q_ASSERT(!d->active);
  d->output.clear();
  d->line.clear();
  d->sentence.clear();
  d->isOurs = d->cancelled = false;
  d->signal = 0;
  d->pid = 0;
  d->active = true;
  if (program.isEmpty()) {
    QMetaObject::invokeMethod(
        this,
        [this] {
          d->end(
              false, -1,
              installPrefix()
                  ? tr("The program pipewright is missing; install it next to this app, or set $PIPEWRIGHT to its path.")
                  : tr("Profile and Run need PyTorch and the command line, which are not here; ./dev build fetches the wheel (about 3 GB) "
                       "and builds both."));
        },
        Qt::QueuedConnection);
    return;
  }
  d->process.start(program, arguments, QIODevice::ReadOnly);
  d->pid = d->process.processId();
}

void Child::cancel() {
  if (!d->active || d->cancelled) return;
  d->cancelled = true;
  d->send(SIGINT);
  d->patience.start(d->firmMs);
}

void Child::setPatience(int firmMs, int killMs) {
  d->firmMs = firmMs;
  d->killMs = killMs;
}

void Child::Private::readOutput() {
  const QByteArray more = process.readAllStandardOutput();
  if (output.size() < kMostOutput) output += more.left(kMostOutput - output.size());
}

void Child::Private::readComplaints() {
  line += process.readAllStandardError();
  qsizetype begin = 0;
  for (qsizetype end = 0; (end = line.indexOf('\n', begin)) >= 0; begin = end + 1) takeLine(line.mid(begin, end - begin));
  line.remove(0, begin);
  if (line.size() > kLongestLine) line.truncate(kLongestLine);  // what comes until the line's end is lost
}

void Child::Private::takeLine(const QByteArray& text) {
  const QByteArray trimmed = text.trimmed();
  if (trimmed.isEmpty()) return;
  if (trimmed.startsWith('{')) {
    const QJsonObject json = readObject(trimmed);
    if (json.contains(QLatin1String("done")) && json.contains(QLatin1String("all"))) {
      emit owner.progressed(json[QLatin1String("done")].toInteger(), json[QLatin1String("all")].toInteger(),
                            json[QLatin1String("note")].toString());
      return;
    }
  }
  // Libraries write to stderr too: a sentence of the program itself takes precedence.
  constexpr QByteArrayView kOurs("pipewright: ");
  const bool ours = trimmed.startsWith(kOurs);
  if (isOurs && !ours) return;
  isOurs = ours;
  sentence = QString::fromUtf8(trimmed.mid(ours ? kOurs.size() : 0).left(2000));
}

void Child::Private::end(bool ok, int status, const QString& fallback) {
  if (!active) return;
  active = false;
  patience.stop();
  if (pid > 0) ::kill(static_cast<pid_t>(-pid), SIGKILL);  // children of its group that it left behind
  ChildOutcome outcome{ok, cancelled, status, std::move(output), {}};
  const bool says = !sentence.isEmpty() && (isOurs || status > 0);
  if (!ok) outcome.error = says ? sentence : fallback;
  emit owner.finished(outcome);
}

}  // namespace pw::gui
