#include "app/gui/command_line.h"

#include <QCommandLineParser>
#include <QObject>
#include <QSettings>
#include <cstdio>

#include "app/gui/common/format.h"
#include "app/gui/timeline/facts/navigation.h"
#include "schedules/error.h"
#include "schedules/named_values.h"

namespace pw::gui {
namespace {

/// The arguments without those that Qt takes itself (`-platform offscreen`, `-style=fusion`).
/// With --export, which needs no display, --title is that of a figure.
QStringList ownArguments(const QStringList& all) {
  const bool exports = all.contains(QLatin1String("--export"));
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
    if (!isQts || (exports && name == QLatin1String("title")))
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

/// The options that there are.
struct Flags {
  explicit Flags(QCommandLineParser& parser) : help(parser.addHelpOption()), version(parser.addVersionOption()) {
    parser.setApplicationDescription(QObject::tr("Pipewright's desktop app: split a model, see the bubbles, run the plan, compare."));
    parser.addPositionalArgument(QStringLiteral("FILE"),
                                 QObject::tr("Model (.pt2; several: parts in order), plan (.json), trace (.json, .sqlite, .et; several: of "
                                             "one job), schedule (.csv), project (.pwproj), run store (.db)"),
                                 QStringLiteral("[FILE...]"));
    parser.addOptions({time, grab, exported, size, theme, panel, search, view, step, run, store});
    for (const FigureSetting& setting : figureSettings()) addFigureSetting(parser, setting);
    parser.addOptions({predicted, both, dpi});
  }

  /// The same options as those of `pipewright export`.
  static void addFigureSetting(QCommandLineParser& parser, const FigureSetting& setting) {
    const QString name = textOf(setting.name), help = QObject::tr("Figure: %1").arg(textOf(setting.help));
    if (!setting.value.empty()) {
      parser.addOption({name, help, textOf(setting.value)});
      return;
    }
    const bool isOn = setting.text({}) == "on";
    QCommandLineOption on(name, help), off(QStringLiteral("no-") + name, help);
    (isOn ? on : off).setFlags(QCommandLineOption::HiddenFromHelp);
    parser.addOptions({on, off});
  }

  QCommandLineOption help, version;
  QCommandLineOption grab{QStringLiteral("grab"), QObject::tr("Write a picture of the window and exit"), QStringLiteral("FILE.png")};
  QCommandLineOption exported{QStringLiteral("export"),
                              QObject::tr("Write the timeline (.png .svg .pdf), spans (.csv) or Chrome trace (.json) and exit; with "
                                          "an option of a figure, or as .tex, the figure of pipewright export (.pdf .png .svg .tex)"),
                              QStringLiteral("FILE")};
  QCommandLineOption size{QStringLiteral("size"), QObject::tr("Window size, 320x240 to 16000x16000"), QStringLiteral("WxH")};
  QCommandLineOption theme{QStringLiteral("theme"), QObject::tr("light or dark (default: as the system)"), QStringLiteral("THEME")};
  QCommandLineOption panel{QStringLiteral("panel"), QObject::tr("Show %1").arg(QString::fromStdString(namesOf<Panel>(", "))),
                           QStringLiteral("NAME")};
  QCommandLineOption search{QStringLiteral("search"), QObject::tr("With --grab: search for plans first")};
  QCommandLineOption view{QStringLiteral("view"), QObject::tr("Show this part of the timeline, as Edit, Copy link to this view, writes it"),
                          QStringLiteral("JSON")};
  QCommandLineOption step{QStringLiteral("step"), QObject::tr("Show this step of the trace (numbers start at 1)"), QStringLiteral("N")};
  QCommandLineOption run{QStringLiteral("show-run"), QObject::tr("Overlay this run of the store (numbers start at 1)"),
                         QStringLiteral("ID")};
  QCommandLineOption store{QStringLiteral("store"), QObject::tr("Record runs in this file"), QStringLiteral("F.db")};
  QCommandLineOption predicted{QStringLiteral("predicted"), QObject::tr("Figure: the prediction, also where there is a measured step")};
  QCommandLineOption both{QStringLiteral("both"), QObject::tr("Figure: the prediction above the measured step, on one time axis")};
  QCommandLineOption dpi{QStringLiteral("dpi"), QObject::tr("Figure: dots per inch of .png (default 300)"), QStringLiteral("N")};
  QCommandLineOption time{QStringLiteral("time-first-frame"),
                          QObject::tr("Print how long the first frame took and how much memory it needed, and exit")};
};

/// The text that help or version show; nothing where neither was requested.
std::optional<Call> shown(const QCommandLineParser& parser, const Flags& flags) {
  if (!parser.isSet(flags.help) && !parser.isSet(flags.version)) return std::nullopt;
  const QString text = parser.isSet(flags.help) ? parser.helpText() : QStringLiteral("pipewright-gui " PW_VERSION "\n");
  Call call;
  call.status = std::fputs(qUtf8Printable(text), stdout) < 0 || std::fflush(stdout) != 0 ? 1 : 0;
  return call;
}

/// The figure that was described; nothing where no option of a figure was given. Throws UsageError.
std::optional<FigureRequest> figureIn(const QCommandLineParser& parser, const Flags& flags) {
  FigureRequest figure;
  bool given = false;
  for (const FigureSetting& setting : figureSettings()) {
    const QString name = textOf(setting.name);
    if (setting.value.empty()) {
      const bool off = parser.isSet(QStringLiteral("no-") + name);
      if (!off && !parser.isSet(name)) continue;
      setting.set(figure.style, off ? "off" : "on");
    } else {
      if (!parser.isSet(name)) continue;
      setting.set(figure.style, parser.value(name).toStdString());
    }
    given = true;
    figure.titled = figure.titled || setting.name == "title";
  }
  if (parser.isSet(flags.both) && parser.isSet(flags.predicted))
    throw UsageError(QObject::tr("--both and --predicted exclude each other; omit one").toStdString());
  if (parser.isSet(flags.both)) figure.steps = FigureSteps::Both;
  if (parser.isSet(flags.predicted)) figure.steps = FigureSteps::Predicted;
  if (parser.isSet(flags.dpi)) {
    bool isNumber = false;
    figure.dpi = parser.value(flags.dpi).toInt(&isNumber);
    if (!isNumber || figure.dpi < kLeastDpi || figure.dpi > kMostDpi)
      throw UsageError(
          QObject::tr("--dpi %1 is not an integer from %2 to %3").arg(parser.value(flags.dpi)).arg(kLeastDpi).arg(kMostDpi).toStdString());
  }
  given = given || figure.steps || parser.isSet(flags.dpi);
  if (!parser.isSet(flags.exported)) {
    if (given) throw UsageError(QObject::tr("options of a figure need --export FILE").toStdString());
    return std::nullopt;
  }
  const QString file = parser.value(flags.exported);
  if (given && !isFigureFile(file))
    throw UsageError(QObject::tr("A figure cannot be written as %1; use .svg, .pdf, .png, or .tex for TikZ").arg(file).toStdString());
  return given || file.endsWith(QLatin1String(".tex")) ? std::optional(figure) : std::nullopt;
}

/// A sentence of the core as one of this program.
QString sentenceOf(const std::string& text) {
  QString sentence = QString::fromStdString(text);
  sentence[0] = sentence[0].toUpper();
  return sentence.endsWith(QLatin1Char('.')) ? sentence : sentence + QLatin1Char('.');
}

/// Reads which place is to be shown; a sentence where that is unusable.
std::optional<QString> readTarget(const QCommandLineParser& parser, const Flags& flags, ViewTarget& target) {
  bool isNumber = false;
  if (parser.isSet(flags.run)) {
    const int id = parser.value(flags.run).toInt(&isNumber);
    if (!isNumber || id < 1)
      return QObject::tr("\"%1\" is not a number of a run; `pipewright runs` lists them.").arg(parser.value(flags.run));
    target.run = RunId(id);
  }
  if (parser.isSet(flags.step)) {
    target.step = parser.value(flags.step).toInt(&isNumber);
    if (!isNumber || target.step < 1)
      return QObject::tr("\"%1\" is not a number of a step of the trace; they start at 1.").arg(parser.value(flags.step));
  }
  target.view = parser.value(flags.view).toUtf8();
  if (parser.isSet(flags.view) && !parseView(target.view))
    return QObject::tr("\"%1\" is not a view; use what Edit, Copy link to this view, wrote.").arg(parser.value(flags.view).left(60));
  return std::nullopt;
}

}  // namespace

int complain(const QString& sentence, int status) {
  std::fprintf(stderr, "pipewright-gui: %s\n", qUtf8Printable(sentence));
  return status;
}

Call parse(const QStringList& arguments) {
  QCommandLineParser parser;
  const Flags flags(parser);
  if (!parser.parse(ownArguments(arguments))) return wrong(QObject::tr("%1 See pipewright-gui --help.").arg(parser.errorText()));
  if (const auto text = shown(parser, flags)) return *text;

  Call call;
  Options& o = call.options;
  o.files = parser.positionalArguments();
  o.grab = parser.value(flags.grab);
  o.exported = parser.value(flags.exported);
  if (parser.isSet(flags.panel)) {
    o.panel = valueNamed<Panel>(parser.value(flags.panel).toStdString());
    o.target.panel = o.panel;
    if (!o.panel)
      return wrong(
          QObject::tr("There is no panel \"%1\"; use %2.").arg(parser.value(flags.panel), QString::fromStdString(namesOf<Panel>(", "))));
  }
  o.search = parser.isSet(flags.search);
  if (const auto problem = readTarget(parser, flags, o.target)) return wrong(*problem);
  if (parser.isSet(flags.size)) {
    const std::optional<QSize> size = sizeNamed(parser.value(flags.size));
    if (!size) return wrong(QObject::tr("\"%1\" is not a size; write for example 1400x900.").arg(parser.value(flags.size)));
    o.size = size;
  }
  try {
    o.figure = figureIn(parser, flags);
  } catch (const UsageError& e) {
    return wrong(sentenceOf(e.what()));
  }
  call.timed = parser.isSet(flags.time);
  call.picture = call.timed || parser.isSet(flags.grab) || parser.isSet(flags.exported);
  call.store = parser.value(flags.store);
  call.theme = parser.isSet(flags.theme) ? parser.value(flags.theme)
               : call.picture            ? QStringLiteral("light")
                                         : QSettings().value(QStringLiteral("theme"), QStringLiteral("system")).toString();
  if (call.theme != QStringLiteral("light") && call.theme != QStringLiteral("dark") && call.theme != QStringLiteral("system")) {
    if (parser.isSet(flags.theme)) return wrong(QObject::tr("There is no theme \"%1\"; use light or dark.").arg(call.theme));
    call.theme = QStringLiteral("system");  // settings may hold anything
  }
  return call;
}

}  // namespace pw::gui
