#include "app/gui/figure/source.h"

#include <QFileInfo>
#include <QObject>
#include <QRegularExpression>

#include "app/gui/document/times.h"
#include "schedules/error.h"
#include "simulator/report/metrics.h"
#include "simulator/timeline/tikz.h"

namespace pw::gui {
namespace {

/// A word as a POSIX shell takes it.
QString quoted(const QString& word) {
  static const QRegularExpression kPlain(QStringLiteral("^[A-Za-z0-9_@%+=:,./-]+$"));
  if (kPlain.match(word).hasMatch()) return word;
  return QLatin1Char('\'') + QString(word).replace(QLatin1Char('\''), QStringLiteral("'\\''")) + QLatin1Char('\'');
}

bool isStored(const FigureSource& source) { return source.measured && source.measured->run && !source.measured->live; }

/// What was predicted of the step: for a stored run with its own plan, whatever the document's is now.
const Trace& predictionOf(const FigureSource& source, FigureSteps steps) {
  return steps == FigureSteps::Both && isStored(source) ? source.measured->run->predicted : source.predicted.value();
}

/// The words that name what is drawn.
QStringList inputOf(const FigureSource& source, FigureSteps steps) {
  const QString plan = QStringLiteral("plan.json");
  if (steps == FigureSteps::Predicted) return {plan};
  QStringList words;
  if (isStored(source)) {
    words << QStringLiteral("--store") << source.store << QStringLiteral("--run") << QString::number(source.measured->run->id.value)
          << QStringLiteral("--step") << QString::number(source.measured->step);
  } else {
    if (steps == FigureSteps::Both) words << plan;
    words << QStringLiteral("--trace") << QStringLiteral("trace.json") << QStringLiteral("--step")
          << QString::number(source.measured->step + 1);
  }
  if (steps == FigureSteps::Both) words << QStringLiteral("--both");
  return words;
}

/// Whether what was predicted for the run is not what is predicted for the document's plan as it is now.
bool isOfAnotherPrediction(const FigureSource& source) {
  return isStored(source) && source.predicted &&
         metricsOf(*source.predicted).makespan != metricsOf(source.measured->run->predicted).makespan;
}

/// With the usual title of the lower step as its times are, and of the upper one as the plan that it is of.
FigureStyle named(FigureStyle style, const FigureSource& source, FigureSteps steps) {
  if (steps == FigureSteps::Both && style.predictedTitle == FigureStyle().predictedTitle && isOfAnotherPrediction(source))
    style.predictedTitle = QObject::tr("Predicted for run %1").arg(source.measured->run->id.value).toStdString();
  const bool isRehearsed = steps == FigureSteps::Both && source.measured && timesOf(*source.measured) == TimesOf::Rehearsed;
  if (isRehearsed && style.measuredTitle == FigureStyle().measuredTitle) style.measuredTitle = QObject::tr("Rehearsed").toStdString();
  return style;
}

}  // namespace

FigureSource figureSource(const Document& document) {
  FigureSource source;
  if (const auto prediction = document.prediction()) {
    source.predicted = traceOf(*prediction);
    source.schedule = QString::fromStdString(prediction->rows->name);
  }
  source.measured = document.measured();
  source.model = document.graph() && !document.graph()->name.empty() ? QString::fromStdString(document.graph()->name) : document.title();
  source.store = document.storePath();
  if (!source.predicted && isStored(source)) source.predicted = source.measured->run->predicted;
  if (!source.predicted && !source.measured)
    throw UsageError(QObject::tr("There is no timeline to draw; open a model, schedule or trace first.").toStdString());
  return source;
}

bool has(const FigureSource& source, FigureSteps steps) {
  switch (steps) {
    case FigureSteps::Predicted: return source.predicted.has_value();
    case FigureSteps::Measured: return source.measured != nullptr;
    case FigureSteps::Both: return source.predicted && source.measured;
  }
  return false;
}

QString pinnedName(const FigureSource& source) { return source.measured ? source.measured->pinnedAs : QString(); }

FigureSteps usualSteps(const FigureSource& source) { return source.measured ? FigureSteps::Measured : FigureSteps::Predicted; }

QString usualTitle(const FigureSource& source, FigureSteps steps) {
  const QString plan = source.schedule.isEmpty() ? source.model : QStringLiteral("%1, %2").arg(source.model, source.schedule);
  if (steps == FigureSteps::Predicted || !source.measured) return QObject::tr("%1, predicted").arg(plan);
  if (!isStored(source)) return steps == FigureSteps::Measured ? source.measured->title : plan;
  const RunRecord& run = *source.measured->run;
  return QObject::tr("run %1: %2, %3, step %4")
      .arg(run.id.value)
      .arg(QString::fromStdString(run.plan.modelName), QString::fromStdString(run.plan.schedule.name))
      .arg(source.measured->step);
}

Figure figureOf(const FigureSource& source, FigureSteps steps, const FigureStyle& chosen, const FigureFrame& frame) {
  const FigureStyle style = named(chosen, source, steps);
  const bool both = steps == FigureSteps::Both;
  const QString pinned = pinnedName(source);
  const auto titleOf = [&](const std::string& given, const std::string& usual, const QString& ofPlan) {
    return !both ? std::string() : !pinned.isEmpty() && given == usual ? ofPlan.toStdString() : given;
  };
  const std::string above = titleOf(style.predictedTitle, FigureStyle().predictedTitle, QObject::tr("This plan"));
  const std::string below = titleOf(style.measuredTitle, FigureStyle().measuredTitle, QObject::tr("Plan %1").arg(pinned));
  std::vector<FigureLane> lanes;
  if (steps != FigureSteps::Measured) lanes.push_back({&predictionOf(source, steps), above});
  if (steps != FigureSteps::Predicted) lanes.push_back({&source.measured->trace, below});
  return layOut(lanes, style, frame);
}

QString figureCall(const FigureSource& source, FigureSteps steps, const FigureStyle& chosen, const QString& file, int dpi) {
  if (steps != FigureSteps::Predicted && !pinnedName(source).isEmpty()) return {};
  const QString suffix = QFileInfo(file).suffix().toLower();
  FigureStyle style = named(chosen, source, steps);
  if (steps != FigureSteps::Both) style.predictedTitle = FigureStyle().predictedTitle, style.measuredTitle = FigureStyle().measuredTitle;
  if (suffix == QLatin1String("tex")) style.font = texFontOf(style.font);
  QStringList words;
  if (suffix == QLatin1String("pdf") || suffix == QLatin1String("png")) {
    words << QStringLiteral("pipewright-gui");
    if (callNeedsPlan(source, steps)) words << QStringLiteral("plan.json");
    if (isStored(source) && steps != FigureSteps::Predicted)
      words << source.store << QStringLiteral("--show-run") << QString::number(source.measured->run->id.value);
    else if (steps != FigureSteps::Predicted)
      words << QStringLiteral("trace.json");
    if (steps == FigureSteps::Both) words << QStringLiteral("--both");
    words << QStringLiteral("--export") << file;
    if (suffix == QLatin1String("png")) words << QStringLiteral("--dpi") << QString::number(dpi);
  } else {
    words << QStringLiteral("pipewright") << QStringLiteral("export") << inputOf(source, steps) << QStringLiteral("--to")
          << (suffix == QLatin1String("tex") ? QStringLiteral("tikz") : QStringLiteral("svg"));
  }
  bool titled = false;
  for (const std::string& option : figureOptions(style)) {
    words << QString::fromStdString(option);
    titled = titled || option.starts_with("--title");
  }
  if (!titled) words << QStringLiteral("--title") << QString();  // else there would be one
  if (words.front() == QLatin1String("pipewright")) words << QStringLiteral("--out") << file;
  QStringList line;
  for (const QString& word : words) line << quoted(word);
  return line.join(QLatin1Char(' '));
}

bool callNeedsPlan(const FigureSource& source, FigureSteps steps) {
  return steps == FigureSteps::Predicted || (steps == FigureSteps::Both && !isStored(source));
}

}  // namespace pw::gui
