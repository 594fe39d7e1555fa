#include <sys/resource.h>
#include <unistd.h>

#include <QApplication>
#include <QCommandLineParser>
#include <QDeadlineTimer>
#include <QEventLoop>
#include <QFile>
#include <QIcon>
#include <QSettings>
#include <QThread>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <optional>

#include "app/gui/candidates/panel.h"
#include "app/gui/common/theme.h"
#include "app/gui/document/document.h"
#include "app/gui/runs/panel.h"
#include "app/gui/timeline/widget.h"
#include "app/gui/window/main_window.h"
#include "backends/host/installation.h"

namespace {

constexpr int kUnusable = 2;
constexpr int kPictureDeadlineMs = 120'000;

int complain(const QString& sentence, int status) {
  std::fprintf(stderr, "pipewright-gui: %s\n", qUtf8Printable(sentence));
  return status;
}

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

/// Since the kernel started this process [ms], to its clock tick (10 ms).
double msSinceStart() {
  QFile file(QStringLiteral("/proc/self/stat"));
  if (!file.open(QIODevice::ReadOnly)) return 0;
  const QByteArray stat = file.readAll();
  const QList<QByteArray> fields = stat.mid(stat.lastIndexOf(')') + 2).split(' ');
  const double started = fields.value(19).toDouble() / static_cast<double>(sysconf(_SC_CLK_TCK));
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return (static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9 - started) * 1e3;
}

struct Options {
  QStringList files;
  QString grab, exported, panel;
  QSize size{1400, 900};
  bool search = false;
  int run = -1;
};

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
  std::printf("{\"first_frame_ms\": %.1f, \"peak_kib\": %ld}\n", msSinceStart(), usage.ru_maxrss);
  return 0;
}

/// Draws the window without showing it and writes its picture, or the timeline alone.
int grab(pw::gui::MainWindow& window, const Options& o) {
  window.resize(o.size);
  window.show();
  if (!o.files.isEmpty()) window.open(o.files);
  if (!settle(window)) return complain(QObject::tr("The window was not ready in time; check whether the file can be opened at all."), 1);
  if (o.run >= 0) {
    window.showPanel(QStringLiteral("runs"));
    window.runs().chooseRun(o.run);
  }
  if (o.search) {
    window.showPanel(QStringLiteral("candidates"));
    window.candidates().search();
  }
  if (!o.panel.isEmpty()) window.showPanel(o.panel);
  if (!settle(window)) return complain(QObject::tr("The search or run was not ready in time."), 1);
  if (window.timeline().isVisible()) window.timeline().fitAll();
  if (!settle(window)) return 1;
  if (!o.exported.isEmpty() && !window.exportTo(o.exported)) return complain(window.message(), 1);
  if (!o.grab.isEmpty() && !window.grab().save(o.grab)) {
    return complain(QObject::tr("Cannot write %1; use a .png file in an existing folder.").arg(o.grab), 1);
  }
  const bool shows = window.document().prediction() || window.document().measured() || !window.runs().runs().empty();
  if (!o.files.isEmpty() && !shows) return complain(window.message(), kUnusable);
  return 0;
}

/// The parsed command line; needs no display.
struct Call {
  Options options;
  QString theme, store;
  bool picture = false, timed = false;  ///< `picture`: no window is shown
  std::optional<int> status;            ///< nothing else to do: help or version was shown, or the arguments were wrong
};

/// The arguments without those that Qt takes itself (`-platform offscreen`, `-style=fusion`).
QStringList ownArguments(const QStringList& all) {
  static const QStringList valued{QStringLiteral("platform"),
                                  QStringLiteral("platformpluginpath"),
                                  QStringLiteral("platformtheme"),
                                  QStringLiteral("plugin"),
                                  QStringLiteral("qwindowgeometry"),
                                  QStringLiteral("qwindowicon"),
                                  QStringLiteral("qwindowtitle"),
                                  QStringLiteral("geometry"),
                                  QStringLiteral("icon"),
                                  QStringLiteral("title"),
                                  QStringLiteral("display"),
                                  QStringLiteral("session"),
                                  QStringLiteral("style"),
                                  QStringLiteral("stylesheet")};
  QStringList own;
  for (qsizetype i = 0; i < all.size(); ++i) {
    const QString name = all[i].mid(all[i].startsWith(QLatin1String("--")) ? 2 : 1).section(QLatin1Char('='), 0, 0);
    const bool isQts = i > 0 && all[i].startsWith(QLatin1Char('-')) && (valued.contains(name) || name == QLatin1String("reverse"));
    if (!isQts)
      own << all[i];
    else if (valued.contains(name) && !all[i].contains(QLatin1Char('=')))
      ++i;
  }
  return own;
}

Call wrong(const QString& sentence) {
  Call call;
  call.status = complain(sentence, kUnusable);
  return call;
}

/// `1400x900`; nothing for anything else, and for sizes that no window should have.
std::optional<QSize> sizeNamed(const QString& text) {
  const QStringList parts = text.split(QLatin1Char('x'));
  const QSize size = parts.size() == 2 ? QSize(parts[0].toInt(), parts[1].toInt()) : QSize();
  const bool fits = size.width() >= 320 && size.height() >= 240 && size.width() <= 16'000 && size.height() <= 16'000;
  return fits ? std::optional(size) : std::nullopt;
}

Call parse(const QStringList& arguments) {
  QCommandLineParser parser;
  parser.setApplicationDescription(QObject::tr("Pipewright's desktop app: split a model, see the bubbles, run the plan, compare."));
  const QCommandLineOption helpOption = parser.addHelpOption(), versionOption = parser.addVersionOption();
  parser.addPositionalArgument(
      QStringLiteral("FILE"),
      QObject::tr("Model (.pt2; several: parts in order), plan or trace (.json), schedule (.csv), project (.pwproj), run store (.db)"),
      QStringLiteral("[FILE...]"));
  const QCommandLineOption grabOption(QStringLiteral("grab"), QObject::tr("Write a picture of the window and exit"),
                                      QStringLiteral("FILE.png"));
  const QCommandLineOption exportOption(QStringLiteral("export"),
                                        QObject::tr("Write the timeline (.png .svg .pdf), spans (.csv) or Chrome trace (.json) and exit"),
                                        QStringLiteral("FILE"));
  const QCommandLineOption sizeOption(QStringLiteral("size"), QObject::tr("Window size, 320x240 to 16000x16000"), QStringLiteral("WxH"));
  const QCommandLineOption themeOption(QStringLiteral("theme"), QObject::tr("light or dark (default: as the system)"),
                                       QStringLiteral("THEME"));
  const QCommandLineOption panelOption(QStringLiteral("panel"), QObject::tr("Show model, plan, candidates, runs, analysis or start"),
                                       QStringLiteral("NAME"));
  const QCommandLineOption searchOption(QStringLiteral("search"), QObject::tr("With --grab: search for plans first"));
  const QCommandLineOption runOption(QStringLiteral("show-run"), QObject::tr("Overlay this run of the store (numbers start at 1)"),
                                     QStringLiteral("ID"));
  const QCommandLineOption storeOption(QStringLiteral("store"), QObject::tr("Record runs in this file"), QStringLiteral("F.db"));
  const QCommandLineOption timeOption(QStringLiteral("time-first-frame"),
                                      QObject::tr("Print how long the first frame took and how much memory it needed, and exit"));
  parser.addOptions({timeOption, grabOption, exportOption, sizeOption, themeOption, panelOption, searchOption, runOption, storeOption});
  if (!parser.parse(ownArguments(arguments))) return wrong(QObject::tr("%1 See pipewright-gui --help.").arg(parser.errorText()));

  Call call;
  if (parser.isSet(helpOption) || parser.isSet(versionOption)) {
    const QString text = parser.isSet(helpOption) ? parser.helpText() : QStringLiteral("pipewright-gui " PW_VERSION "\n");
    call.status = std::fputs(qUtf8Printable(text), stdout) < 0 || std::fflush(stdout) != 0 ? 1 : 0;
    return call;
  }
  Options& o = call.options;
  o.files = parser.positionalArguments();
  o.grab = parser.value(grabOption);
  o.exported = parser.value(exportOption);
  o.panel = parser.value(panelOption);
  o.search = parser.isSet(searchOption);
  if (parser.isSet(runOption)) {
    bool isNumber = false;
    o.run = parser.value(runOption).toInt(&isNumber);
    if (!isNumber || o.run < 1)
      return wrong(QObject::tr("\"%1\" is not a number of a run; `pipewright runs` lists them.").arg(parser.value(runOption)));
  }
  if (parser.isSet(sizeOption)) {
    const std::optional<QSize> size = sizeNamed(parser.value(sizeOption));
    if (!size) return wrong(QObject::tr("\"%1\" is not a size; write for example 1400x900.").arg(parser.value(sizeOption)));
    o.size = *size;
  }
  call.timed = parser.isSet(timeOption);
  call.picture = call.timed || parser.isSet(grabOption) || parser.isSet(exportOption);
  call.store = parser.value(storeOption);
  call.theme = parser.isSet(themeOption) ? parser.value(themeOption)
               : call.picture            ? QStringLiteral("light")
                                         : QSettings().value(QStringLiteral("theme"), QStringLiteral("system")).toString();
  if (call.theme != QStringLiteral("light") && call.theme != QStringLiteral("dark") && call.theme != QStringLiteral("system")) {
    if (parser.isSet(themeOption)) return wrong(QObject::tr("There is no theme \"%1\"; use light or dark.").arg(call.theme));
    call.theme = QStringLiteral("system");  // settings may hold anything
  }
  return call;
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
    call = parse(QCoreApplication::arguments());
  }
  if (call.status) return *call.status;
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
  window.show();
  if (!call.options.files.isEmpty()) window.open(call.options.files);
  return QApplication::exec();
}
