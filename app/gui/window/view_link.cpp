#include "app/gui/window/view_link.h"

#include <QRegularExpression>
#include <QTimer>
#include <memory>

#include "app/gui/document/document.h"
#include "app/gui/runs/panel.h"
#include "app/gui/timeline/widget.h"
#include "app/gui/window/main_window.h"

namespace pw::gui {
namespace {

constexpr int kLookMs = 30;

}  // namespace

QString quoted(const QString& argument) {
  static const QRegularExpression plain(QStringLiteral("^[A-Za-z0-9_./:=@%+-]+$"));
  if (plain.match(argument).hasMatch()) return argument;
  QString inside = argument;
  return QLatin1Char('\'') + inside.replace(QLatin1Char('\''), QStringLiteral("'\\''")) + QLatin1Char('\'');
}

QString commandLineOf(const QStringList& files, const ViewTarget& target) {
  QStringList words{QStringLiteral("pipewright-gui")};
  for (const QString& file : files) words << quoted(file.startsWith(QLatin1Char('-')) ? QStringLiteral("./") + file : file);
  if (target.step > 0) words << QStringLiteral("--step") << QString::number(target.step);
  if (target.run) words << QStringLiteral("--show-run") << QString::number(target.run->value);
  if (!target.store.isEmpty()) words << QStringLiteral("--store") << quoted(target.store);
  if (!target.view.isEmpty()) words << QStringLiteral("--view") << quoted(QString::fromUtf8(target.view));
  return words.join(QLatin1Char(' '));
}

void goWhenOpen(MainWindow& window, const ViewTarget& target) {
  enum class Next { Measured, View };
  const auto next = std::make_shared<Next>(Next::Measured);
  auto* timer = new QTimer(&window);
  timer->setInterval(kLookMs);
  QObject::connect(timer, &QTimer::timeout, &window, [&window, target, next, timer, ticks = std::make_shared<int>(0)] {
    if (!window.isIdle() || window.runs().isBusy()) return;
    if (*next == Next::Measured) {
      *next = Next::View;
      if (target.panel) window.showPanel(*target.panel);
      if (target.step > 0) window.showStep(target.step);
      if (target.run) window.runs().chooseRun(*target.run);
      return;
    }
    const auto measured = window.document().measured();
    constexpr int kMostTicks = 300;  // a run that is not in the store is said by its panel
    if (target.run && !(measured && measured->run) && ++*ticks < kMostTicks) return;
    if (!target.view.isEmpty()) window.showView(target.view);
    timer->deleteLater();
    timer->stop();
  });
  timer->start();
}

}  // namespace pw::gui
