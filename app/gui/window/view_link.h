#pragma once

#include <QByteArray>
#include <QString>
#include <QStringList>
#include <optional>

#include "app/gui/window/panel_names.h"
#include "schedules/ids.h"

namespace pw::gui {

class Document;
class MainWindow;

/// A place in a window, as a command line names it.
struct ViewTarget {
  QByteArray view;             ///< of `TimelineWidget::saveView`; what it does not say is as in a new window; empty: all of the step
  QString store;               ///< of the run; empty: the usual one
  std::optional<RunId> run;    ///< that is shown beside the prediction
  int step = 0;                ///< of the trace that is opened, from 1; 0: a typical one
  std::optional<Panel> panel;  ///< to the front

  [[nodiscard]] bool isAny() const { return !view.isEmpty() || run || step > 0 || panel; }
};

/// A command for a POSIX shell that opens these files at this place: `pipewright-gui plan.json --view '{"from":0,"to":1500000}'`.
[[nodiscard]] QString commandLineOf(const QStringList& files, const ViewTarget& target);
/// One argument for a POSIX shell, in quotes where it needs them.
[[nodiscard]] QString quoted(const QString& argument);
/// Goes to a place as soon as what was opened is there: its panel, step or run first, then its view.
void goWhenOpen(MainWindow& window, const ViewTarget& target);

}  // namespace pw::gui
