#include "app/gui/command_line.h"

#include <QCommandLineParser>
#include <QObject>
#include <QSettings>
#include <cstdio>

#include "schedules/named_values.h"

namespace pw::gui {
namespace {

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

/// The options that there are.
struct Flags {
  explicit Flags(QCommandLineParser& parser) : help(parser.addHelpOption()), version(parser.addVersionOption()) {
    parser.setApplicationDescription(QObject::tr("Pipewright's desktop app: split a model, see the bubbles, run the plan, compare."));
    parser.addPositionalArgument(
        QStringLiteral("FILE"),
        QObject::tr("Model (.pt2; several: parts in order), plan or trace (.json), schedule (.csv), project (.pwproj), run store (.db)"),
        QStringLiteral("[FILE...]"));
    parser.addOptions({time, grab, exported, size, theme, panel, search, run, store});
  }

  QCommandLineOption help, version;
  QCommandLineOption grab{QStringLiteral("grab"), QObject::tr("Write a picture of the window and exit"), QStringLiteral("FILE.png")};
  QCommandLineOption exported{QStringLiteral("export"),
                              QObject::tr("Write the timeline (.png .svg .pdf), spans (.csv) or Chrome trace (.json) and exit"),
                              QStringLiteral("FILE")};
  QCommandLineOption size{QStringLiteral("size"), QObject::tr("Window size, 320x240 to 16000x16000"), QStringLiteral("WxH")};
  QCommandLineOption theme{QStringLiteral("theme"), QObject::tr("light or dark (default: as the system)"), QStringLiteral("THEME")};
  QCommandLineOption panel{QStringLiteral("panel"), QObject::tr("Show %1").arg(QString::fromStdString(namesOf<Panel>(", "))),
                           QStringLiteral("NAME")};
  QCommandLineOption search{QStringLiteral("search"), QObject::tr("With --grab: search for plans first")};
  QCommandLineOption run{QStringLiteral("show-run"), QObject::tr("Overlay this run of the store (numbers start at 1)"), QStringLiteral("ID")};
  QCommandLineOption store{QStringLiteral("store"), QObject::tr("Record runs in this file"), QStringLiteral("F.db")};
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
    if (!o.panel)
      return wrong(QObject::tr("There is no panel \"%1\"; use %2.")
                       .arg(parser.value(flags.panel), QString::fromStdString(namesOf<Panel>(", "))));
  }
  o.search = parser.isSet(flags.search);
  if (parser.isSet(flags.run)) {
    bool isNumber = false;
    o.run = parser.value(flags.run).toInt(&isNumber);
    if (!isNumber || o.run < 1)
      return wrong(QObject::tr("\"%1\" is not a number of a run; `pipewright runs` lists them.").arg(parser.value(flags.run)));
  }
  if (parser.isSet(flags.size)) {
    const std::optional<QSize> size = sizeNamed(parser.value(flags.size));
    if (!size) return wrong(QObject::tr("\"%1\" is not a size; write for example 1400x900.").arg(parser.value(flags.size)));
    o.size = *size;
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
