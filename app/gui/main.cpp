#include <sys/resource.h>
#include <unistd.h>

#include <QApplication>
#include <QDeadlineTimer>
#include <QEventLoop>
#include <QIcon>
#include <QSettings>
#include <QThread>
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "app/gui/candidates/panel.h"
#include "app/gui/command_line.h"
#include "app/gui/common/theme.h"
#include "app/gui/document/document.h"
#include "app/gui/runs/panel.h"
#include "app/gui/timeline/widget.h"
#include "app/gui/window/main_window.h"
#include "backends/host/installation.h"
#include "backends/host/process_age.h"
#include "backends/resources/resources.h"
#include "schedules/error.h"

namespace {

using pw::gui::Call;
using pw::gui::complain;
using pw::gui::kUnusable;
using pw::gui::Options;

constexpr int kPictureDeadlineMs = 120'000;
constexpr QSize kPictureSize(1400, 900);

/// The system's theme as Qt reports it: dark if text is lighter than its background.
bool systemIsDark() {
  const QPalette p = QApplication::palette();
  return p.color(QPalette::WindowText).lightness() > p.color(QPalette::Window).lightness();
}

/// Lets the window work until nothing is pending; false when that takes too long.
bool settle(pw::gui::MainWindow& window) {
  const QDeadlineTimer deadline(kPictureDeadlineMs);
  for (int calm = 0; calm < 3;) {
    QApplication::processEvents(QEventLoop::AllEvents, 20);
    QApplication::sendPostedEvents();
    const bool idle = window.isIdle() && !window.candidates().isSearching() && !window.runs().isBusy();
    calm = idle ? calm + 1 : 0;
    if (deadline.hasExpired()) return false;
    QThread::msleep(5);
  }
  return true;
}

/// The program's icon in every size that is there; an empty one without resources.
QIcon icon() {
  QIcon icon;
  for (const int size : {48, 128, 256})
    icon.addFile(QStringLiteral("%1/icons/pipewright-%2.png").arg(QString::fromStdString(pw::resourceFolder())).arg(size));
  return icon;
}

/// Shows the window with what was opened, says how long the first whole frame took since the process started, and what memory it needed.
int timeFirstFrame(pw::gui::MainWindow& window, const QStringList& files) {
  window.show();
  if (!files.isEmpty()) window.open(files);
  const QDeadlineTimer deadline(kPictureDeadlineMs);
  const auto shown = [&] {
    return files.isEmpty() || window.document().measured() || window.document().prediction() || !window.message().isEmpty();
  };
  while (!shown()) {
    QApplication::processEvents(QEventLoop::AllEvents);
    QThread::usleep(200);
    if (deadline.hasExpired()) return complain(QObject::tr("Nothing was shown in time."), 1);
  }
  window.repaint();
  QApplication::processEvents();
  if (!window.message().isEmpty() && !window.document().measured() && !window.document().prediction())
    return complain(window.message(), kUnusable);
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  std::printf("{\"first_frame_ms\": %.1f, \"peak_kib\": %ld}\n", static_cast<double>(pw::processAge()) / 1e6, usage.ru_maxrss);
  return 0;
}

/// Writes the figure that the command line describes.
int writeFigureOf(const pw::gui::Document& document, const pw::gui::FigureRequest& request, const QString& path) {
  try {
    const pw::gui::FigureSource source = pw::gui::figureSource(document);
    const pw::gui::FigureSteps steps = request.steps.value_or(pw::gui::usualSteps(source));
    if (!pw::gui::has(source, steps))
      return complain(QObject::tr("There are no two steps to draw; open a run or trace beside the plan, or use --show-run."), kUnusable);
    pw::FigureStyle style = request.style;
    if (!request.titled) style.title = pw::gui::usualTitle(source, steps).toStdString();
    pw::gui::writeFigure(pw::gui::figureOf(source, steps, style, pw::gui::frameFor(path)), path, request.dpi);
  } catch (const pw::UsageError& e) {
    return complain(QString::fromUtf8(e.what()), kUnusable);
  } catch (const pw::Error& e) {
    return complain(QString::fromUtf8(e.what()), 1);
  }
  return 0;
}

/// Opens the files; for a figure a plan and a trace one after the other. False when that takes too long.
bool openAll(pw::gui::MainWindow& window, const Options& o) {
  const bool apart = o.figure && o.files.size() == 2 && o.files.front().endsWith(QLatin1String(".json"));
  if (!apart) {
    if (!o.files.isEmpty()) window.open(o.files);
    return settle(window);
  }
  for (const QString& file : o.files) {
    window.open({file});
    if (!settle(window)) return false;
  }
  return true;
}

/// Overlays a run; false, and a message, where the store has no such run.
bool showRun(pw::gui::MainWindow& window, pw::RunId id) {
  bool isListed = false;
  const auto seen = QObject::connect(&window.runs(), &pw::gui::RunsPanel::listed, &window, [&] { isListed = true; });
  window.showPanel(pw::gui::Panel::Runs);
  window.runs().chooseRun(id);
  const QDeadlineTimer deadline(kPictureDeadlineMs);
  while (!isListed && !deadline.hasExpired()) {
    QApplication::processEvents(QEventLoop::AllEvents, 20);
    QThread::msleep(5);
  }
  QObject::disconnect(seen);
  return std::ranges::any_of(window.runs().runs(), [&](const pw::RunSummary& run) { return run.id == id; });
}

/// Draws the window without showing it and writes its picture, or the timeline alone.
int grab(pw::gui::MainWindow& window, const Options& o) {
  window.resize(o.size.value_or(kPictureSize));
  window.show();
  if (!openAll(window, o))
    return complain(QObject::tr("The window was not ready in time; check whether the file can be opened at all."), 1);
  if (o.target.step > 0 && !window.showStep(o.target.step)) return complain(window.message(), kUnusable);
  if (o.target.run && !showRun(window, *o.target.run)) return complain(window.message(), kUnusable);
  if (o.search) {
    window.showPanel(pw::gui::Panel::Candidates);
    window.candidates().search();
  }
  if (o.panel) window.showPanel(*o.panel);
  if (!settle(window)) return complain(QObject::tr("The search or run was not ready in time."), 1);
  if (!o.target.view.isEmpty())
    window.showView(o.target.view);
  else if (window.timeline().isVisible())
    window.timeline().fitAll();
  if (!settle(window)) return 1;
  if (o.figure) {
    if (const int status = writeFigureOf(window.document(), *o.figure, o.exported); status != 0) return status;
  } else if (!o.exported.isEmpty() && !window.exportTo(o.exported)) {
    return complain(window.message(), 1);
  }
  if (!o.grab.isEmpty() && !window.grab().save(o.grab)) {
    return complain(QObject::tr("Cannot write %1; use a .png file in an existing folder.").arg(o.grab), 1);
  }
  const bool shows = window.document().prediction() || window.document().measured() ||
                     (window.message().isEmpty() && !window.runs().runs().empty());  // those may be of earlier work
  if (!o.files.isEmpty() && !shows) return complain(window.message(), kUnusable);
  return 0;
}

/// Why no window can work: what comes with the program is not where it looks for it. Empty: it is there.
QString missingResources() {
  try {
    static_cast<void>(pw::linkPresets());
    static_cast<void>(pw::loadCluster(pw::gui::Design().cluster));
    return {};
  } catch (const pw::Error& e) {
    return QObject::tr(
               "The files that come with this program are not in %1 (%2); install it again, or set PIPEWRIGHT_RESOURCES to their "
               "folder.")
        .arg(QString::fromStdString(pw::resourceFolder()), QString::fromUtf8(e.what()));
  }
}

/// Without a display Qt would end the process by a signal; this reports a sentence and an exit status instead.
void onQtMessage(QtMsgType type, const QMessageLogContext& context, const QString& text) {
  if (type != QtFatalMsg) {
    std::fprintf(stderr, "%s\n", qUtf8Printable(qFormatLogMessage(type, context, text)));
    return;
  }
  const QString reason = text.section(QLatin1Char('\n'), 0, 0).simplified();
  std::_Exit(complain(
      QObject::tr("No window can be opened here (%1); set DISPLAY, or draw into a file with --grab or --export.").arg(reason), kUnusable));
}

}  // namespace

int main(int argc, char** argv) {
  Call call;
  {
    int count = argc;
    const QCoreApplication parsing(count, argv);  // needs no display
    QCoreApplication::setOrganizationName(QStringLiteral("Pipewright"));
    QCoreApplication::setApplicationName(QStringLiteral("Pipewright"));
    QCoreApplication::setApplicationVersion(QStringLiteral(PW_VERSION));
    call = pw::gui::parse(QCoreApplication::arguments());
  }
  if (call.status) return *call.status;
  if (const QString missing = missingResources(); !missing.isEmpty()) return complain(missing, kUnusable);
  if (call.picture && qEnvironmentVariableIsEmpty("QT_QPA_PLATFORM")) qputenv("QT_QPA_PLATFORM", "offscreen");
  const QtMessageHandler usual = qInstallMessageHandler(onQtMessage);
  QApplication app(argc, argv);
  qInstallMessageHandler(usual);
  QApplication::setWindowIcon(icon());
  QGuiApplication::setDesktopFileName(QStringLiteral("pipewright"));  // by which Wayland finds the icon
  pw::gui::applyTheme(call.theme == QStringLiteral("system") ? systemIsDark() : call.theme == QStringLiteral("dark"));
  constexpr double kLargestFont = 200;
  if (const double points = QSettings().value(QStringLiteral("font size")).toDouble();
      points > 0 && points <= kLargestFont && !call.picture) {
    QFont font = QApplication::font();
    font.setPointSizeF(points);
    QApplication::setFont(font);
  }

  pw::gui::MainWindow window(!call.picture);
  if (!call.store.isEmpty()) window.document().setStorePath(call.store);
  if (call.timed) return timeFirstFrame(window, call.options.files);
  if (call.picture) return grab(window, call.options);
  if (const auto& size = call.options.size) {
    window.setWindowState(window.windowState() & ~(Qt::WindowMaximized | Qt::WindowFullScreen));
    window.resize(*size);
  }
  window.show();
  if (!call.options.files.isEmpty()) window.open(call.options.files);
  if (call.options.target.isAny()) pw::gui::goWhenOpen(window, call.options.target);
  return QApplication::exec();
}
