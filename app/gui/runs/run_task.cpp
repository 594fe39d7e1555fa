#include "app/gui/runs/run_task.h"

#include <QDir>
#include <QJsonObject>
#include <QTemporaryDir>
#include <QTimer>
#include <fstream>
#include <tuple>
#include <utility>

#include "app/gui/common/format.h"
#include "app/gui/common/jobs.h"
#include "app/gui/common/json_object.h"
#include "app/gui/runs/child.h"
#include "backends/host/files.h"
#include "backends/resources/resources.h"
#include "engine/live_spans.h"
#include "simulator/timeline/fill.h"

namespace pw::gui {
namespace {

constexpr int kLookMs = 100;
constexpr std::size_t kPiece = std::size_t{1} << 20;

/// A live file that is read as it grows; used by one thread at a time.
struct LiveFile {
  LiveFile(std::string p, const Plan& plan) : path(std::move(p)), reader(worldSize(plan), static_cast<int>(plan.schedule.rows.size())) {}

  std::string path;
  std::streamoff at = 0;
  LiveReader reader;
  std::tuple<int, std::size_t, bool> shown{-1, 0, false};  ///< step, spans, whether complete

  /// Reads what is new; returns whether there was any news.
  bool read() {
    std::ifstream file(path, std::ios::binary);
    file.seekg(at);
    bool told = false;
    std::string piece(kPiece, '\0');
    while (file.read(piece.data(), static_cast<std::streamsize>(piece.size())) || file.gcount() > 0) {
      at += file.gcount();
      told = reader.feed(std::string_view(piece).substr(0, static_cast<std::size_t>(file.gcount()))) || told;
    }
    return told;
  }
};

std::shared_ptr<const Measured> liveMeasured(LiveStep step) {
  auto measured = std::make_shared<Measured>();
  measured->title = RunTask::tr("running · step %1").arg(step.step);
  measured->trace = std::move(step.trace);
  measured->timeline = timelineOf(measured->trace);
  measured->step = step.step;
  measured->live = true;
  return measured;
}

/// What the child says of where its run is stored.
std::optional<RunId> runIdOf(const QByteArray& output) {
  const int id = readObject(output).value(QLatin1String("run_id")).toInt(0);
  return id > 0 ? std::optional(RunId(id)) : std::nullopt;
}

}  // namespace

QString precisionWord(DType precision) { return textOf(precisionName(precision)); }

struct RunTask::Private {
  enum class Kind : std::uint8_t { None, Run, Profile } kind = Kind::None;
  QString program;
  std::unique_ptr<QTemporaryDir> folder;  ///< removed after the child has ended
  Child child;
  Job prepare, watch, finish;
  QTimer look;
  std::shared_ptr<LiveFile> live;

  [[nodiscard]] QString file(const QString& name) const { return folder->filePath(name); }
  void start(const QStringList& arguments) { child.start(program.isEmpty() ? Child::program() : program, arguments); }
  /// Ends a task that did not complete.
  void fail(RunTask& task, const QString& error) {
    const auto what = std::exchange(kind, Kind::None);
    if (what == Kind::Run) emit task.runEnded(false, {}, error);
    if (what == Kind::Profile) emit task.profileEnded(nullptr, error);
  }
  /// Whether there is a folder for a new task; else that will fail.
  [[nodiscard]] bool begin(Kind what, RunTask& task) {
    kind = what;
    folder = std::make_unique<QTemporaryDir>(QDir::tempPath() + QStringLiteral("/pipewright-XXXXXX"));
    if (folder->isValid()) return true;
    QMetaObject::invokeMethod(
        &task,
        [this, &task] {
          fail(task, tr("Cannot make a folder in %1 (%2); free space there.").arg(QDir::tempPath(), folder->errorString()));
        },
        Qt::QueuedConnection);
    return false;
  }
};

RunTask::RunTask(QObject* parent) : QObject(parent), d(std::make_unique<Private>()) {
  d->look.setInterval(kLookMs);
  connect(&d->child, &Child::progressed, this, &RunTask::progressed);
  connect(&d->look, &QTimer::timeout, this, [this] {
    if (d->watch.isRunning()) return;  // reading takes longer than the poll interval, and then sets the pace
    d->watch.start(tr("Read the run"), [this, live = d->live](JobControl&) -> std::function<void()> {
      if (!live->read()) return {};
      auto step = live->reader.worthShowing();
      if (!step) return {};
      const std::tuple now{step->step, step->trace.spans.size(), step->complete};
      if (std::exchange(live->shown, now) == now) return {};  // what is new is of a step too young to show
      return [this, measured = liveMeasured(std::move(*step))] { emit arrived(measured); };
    });
  });
  const auto fail = [this](const QString& error) { d->fail(*this, error); };
  connect(&d->prepare, &Job::failed, this, fail);
  connect(&d->finish, &Job::failed, this, fail);
  connect(&d->child, &Child::finished, this, [this, fail](const ChildOutcome& outcome) {
    d->look.stop();
    d->watch.cancel();
    d->live.reset();
    if (!outcome.ok) return fail(outcome.cancelled ? QString() : outcome.error);
    if (d->kind == Private::Kind::Run) {
      d->kind = Private::Kind::None;
      emit runEnded(true, runIdOf(outcome.output), {});
      return;
    }
    d->finish.start(tr("Read the profile"),
                    [this, path = d->file(QStringLiteral("profile.json")).toStdString()](JobControl&) -> std::function<void()> {
                      auto profile = std::make_shared<const Profile>(loadProfile(path));
                      return [this, profile] {
                        d->kind = Private::Kind::None;
                        emit profileEnded(profile, {});
                      };
                    });
  });
}

RunTask::~RunTask() = default;

void RunTask::setProgram(const QString& program) { d->program = program; }

bool RunTask::isRunning() const { return d->kind != Private::Kind::None; }

qint64 RunTask::processId() const { return d->child.processId(); }

void RunTask::run(const RunRequest& request) {
  if (isRunning() || !d->begin(Private::Kind::Run, *this)) return;
  d->prepare.start(tr("Write the plan"),
                   [this, request, path = d->file(QStringLiteral("plan.json"))](JobControl&) -> std::function<void()> {
                     writeFile(path.toStdString(), toJson(*request.plan));
                     return [this, request, path] {
                       const QString live = d->file(QStringLiteral("live"));
                       d->live = std::make_shared<LiveFile>(live.toStdString(), *request.plan);
                       QStringList words{QStringLiteral("run"),           path,
                                         QStringLiteral("--steps"),       QString::number(request.steps),
                                         QStringLiteral("--backend"),     textOf(nameOf(request.transport)),
                                         QStringLiteral("--store"),       request.store,
                                         QStringLiteral("--live"),        live,
                                         QStringLiteral("--progress"),    QStringLiteral("json"),
                                         QStringLiteral("--json"),        QStringLiteral("--precision"),
                                         precisionWord(request.precision)};
                       if (request.synthetic) {  // a rehearsal updates nothing
                         words << QStringLiteral("--synthetic");
                       } else {
                         for (const std::string& word : optimizerArguments(request.optimizer)) words << QString::fromStdString(word);
                       }
                       d->look.start();  // first: a program that cannot be started ends at once, and stops it
                       d->start(words);
                     };
                   });
}

void RunTask::profile(const ProfileRequest& request) {
  if (isRunning() || !d->begin(Private::Kind::Profile, *this)) return;
  QStringList words{QStringLiteral("profile")};
  for (const std::string& model : request.models) words << QString::fromStdString(model);
  words << QStringLiteral("--microbatch") << QString::number(request.microbatch) << QStringLiteral("--ranks")
        << QString::number(request.ranks) << QStringLiteral("--loss") << QString::fromStdString(toString(request.loss))
        << QStringLiteral("--out") << d->file(QStringLiteral("profile.json")) << QStringLiteral("--progress") << QStringLiteral("json")
        << QStringLiteral("--quiet") << QStringLiteral("--precision") << precisionWord(request.computing.precision)
        << QStringLiteral("--device") << (request.computing.onGpu ? QStringLiteral("cuda") : QStringLiteral("cpu"));
  d->start(words);
}

void RunTask::cancel() {
  if (!isRunning()) return;
  if (d->child.isRunning()) return d->child.cancel();
  d->prepare.cancel();
  d->finish.cancel();
  d->fail(*this, {});
}

}  // namespace pw::gui
