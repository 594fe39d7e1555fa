// What the user exports, chosen from the menu.

#include <QAbstractItemView>
#include <QApplication>
#include <QFileDialog>
#include <QFileInfo>
#include <QStatusBar>
#include <variant>

#include "app/gui/common/format.h"
#include "app/gui/document/drawn.h"
#include "app/gui/figure/dialog.h"
#include "app/gui/window/exporting.h"
#include "app/gui/window/window_parts.h"
#include "backends/host/files.h"
#include "schedules/csv.h"
#include "schedules/error.h"

namespace pw::gui {

void MainWindow::Private::chooseAndExport(const QString& what, const QString& filter, const QString& suffix) {
  const QString path =
      QFileDialog::getSaveFileName(&window, what, QFileInfo(document.title()).completeBaseName() + QLatin1Char('.') + suffix,
                                   what + QStringLiteral(" (%1)").arg(filter));
  if (path.isEmpty()) return;
  const QString file = QFileInfo(path).suffix().isEmpty() ? path + QLatin1Char('.') + suffix : path;
  if (isPicture(file)) {
    window.exportTo(file);
    return;
  }
  const ExportSource source{document.prediction(), document.measured()};
  exporting.start(MainWindow::tr("Writing %1").arg(QFileInfo(file).fileName()), [this, source, file](JobControl&) -> std::function<void()> {
    exportData(source, file);
    return [this, file] { window.statusBar()->showMessage(MainWindow::tr("Wrote %1").arg(file), 4000); };
  });
}

void MainWindow::Private::showFigure() {
  try {
    openFigureDialog(document, recovers, &window);
  } catch (const Error& e) {
    window.showMessage(QString::fromUtf8(e.what()));
  }
}

/// The order of the plan's compute actions, as torch and the command line read it.
void MainWindow::Private::chooseAndExportSchedule() {
  const auto editable = editableSchedule(document);
  if (const auto* refusal = std::get_if<std::string>(&editable)) return window.showMessage(capitalised(QString::fromStdString(*refusal)));
  const Schedule& order = std::get<Schedule>(editable);
  const QString path =
      QFileDialog::getSaveFileName(&window, MainWindow::tr("Export schedule"),
                                   QString::fromStdString(order.name).replace(QLatin1Char('/'), QLatin1Char('-')) + QStringLiteral(".csv"),
                                   MainWindow::tr("Schedules (*.csv)"));
  if (path.isEmpty()) return;
  const QString file = QFileInfo(path).suffix().isEmpty() ? path + QStringLiteral(".csv") : path;
  try {
    writeFile(file.toStdString(), toCsv(order));
    window.statusBar()->showMessage(MainWindow::tr("Wrote %1").arg(file), 4000);
  } catch (const Error& e) {
    window.showMessage(QString::fromUtf8(e.what()));
  }
}

/// The table that has the focus, else the first that is seen.
void MainWindow::Private::chooseAndExportTable() {
  const QAbstractItemView* found = qobject_cast<QAbstractItemView*>(QApplication::focusWidget());
  for (QDockWidget* dock : {runsDock, candidatesDock, analysisDock, scheduleDock, modelDock}) {
    for (const auto* view : dock->findChildren<QAbstractItemView*>()) {
      if (found == nullptr && view->isVisibleTo(&window) && view->model() != nullptr && view->model()->rowCount() > 0) found = view;
    }
  }
  if (found == nullptr || found->model() == nullptr)
    return window.showMessage(MainWindow::tr("No table is shown; select a run or search for plans first."));
  const QString path = QFileDialog::getSaveFileName(&window, MainWindow::tr("Export %1").arg(found->accessibleName()),
                                                    QStringLiteral("table.csv"), MainWindow::tr("Tables (*.csv)"));
  if (path.isEmpty()) return;
  try {
    writeFile(path.toStdString(), tableCsv(*found->model()));
  } catch (const Error& e) {
    window.showMessage(QString::fromUtf8(e.what()));
  }
}

}  // namespace pw::gui
