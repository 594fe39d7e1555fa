#pragma once

#include <QByteArray>
#include <QSize>
#include <QString>
#include <QStringList>
#include <memory>
#include <string>

#include "app/gui/document/document.h"

class QAbstractItemModel;

namespace pw::gui {

class TimelineWidget;

/// What an export needs of the document, held so that it can be written in the background.
struct ExportSource {
  std::shared_ptr<const Prediction> prediction;
  std::shared_ptr<const Measured> measured;
};

/// Throws UsageError where there is nothing to draw or write.
void requireTimeline(const ExportSource& source);
/// Writes a file in the format of its extension, atomically: `.csv` the spans, `.json` a Chrome trace of predicted and measured. Throws
/// Error. For a job.
void exportData(const ExportSource& source, const QString& path);
/// The timeline as it stands, all ranks, painted as in the window: `.png` (at twice its size, for sharp print), and on white `.pdf` or
/// `.svg`. Throws Error. Main thread.
void exportPicture(const TimelineWidget& timeline, const QSize& size, const QString& path);
/// The plan for torch.distributed.pipelining in this folder, made where missing. Returns what torch does differently, in sentences. Throws
/// Error.
[[nodiscard]] QStringList exportTorch(const Document& document, const QString& folder);
/// A table or tree as people see it, for spreadsheets: a head, then a line for each row, those of branches after their parent; cells with
/// commas, quotes or line ends are quoted (RFC 4180).
[[nodiscard]] std::string tableCsv(const QAbstractItemModel& model);
/// `.png`, `.pdf`, `.svg`: painted by the window; others are data.
[[nodiscard]] bool isPicture(const QString& path);

}  // namespace pw::gui
