#include "app/gui/window/exporting.h"

#include <QAbstractItemModel>
#include <QBuffer>
#include <QFileInfo>
#include <QPainter>
#include <QPdfWriter>
#include <QPixmap>
#include <QSvgGenerator>

#include "app/gui/common/theme.h"
#include "app/gui/document/times.h"
#include "app/gui/timeline/widget.h"
#include "backends/host/files.h"
#include "backends/resources/torch_export.h"
#include "schedules/error.h"
#include "simulator/timeline/chrome.h"
#include "simulator/trace/trace_csv.h"

namespace pw::gui {
namespace {

std::string suffixOf(const QString& path) { return QFileInfo(path).suffix().toLower().toStdString(); }

std::string csvCell(const QString& text) {
  if (!text.contains(QLatin1Char(',')) && !text.contains(QLatin1Char('"')) && !text.contains(QLatin1Char('\n'))) return text.toStdString();
  return "\"" + QString(text).replace(QLatin1Char('"'), QStringLiteral("\"\"")).toStdString() + "\"";
}

void addRows(const QAbstractItemModel& model, const QModelIndex& parent, std::string& text) {
  for (int row = 0; row < model.rowCount(parent); ++row) {
    for (int column = 0; column < model.columnCount(parent); ++column) {
      text += (column > 0 ? "," : "") + csvCell(model.index(row, column, parent).data().toString());
    }
    text += "\r\n";
    addRows(model, model.index(row, 0, parent), text);
  }
}

}  // namespace

std::string tableCsv(const QAbstractItemModel& model) {
  std::string text;
  for (int column = 0; column < model.columnCount(); ++column)
    text += (column > 0 ? "," : "") + csvCell(model.headerData(column, Qt::Horizontal).toString());
  text += "\r\n";
  addRows(model, {}, text);
  return text;
}

bool isPicture(const QString& path) {
  const std::string suffix = suffixOf(path);
  return suffix == "png" || suffix == "pdf" || suffix == "svg";
}

void requireTimeline(const ExportSource& source) {
  if (!source.prediction && !source.measured)
    throw UsageError(QObject::tr("There is no timeline to export; open a model, schedule or trace first.").toStdString());
}

void exportData(const ExportSource& source, const QString& path) {
  requireTimeline(source);
  const Trace predicted = source.prediction ? traceOf(*source.prediction) : Trace{};
  std::vector<const Trace*> traces;
  std::vector<std::string> names;
  if (source.prediction) {
    traces.push_back(&predicted);
    names.push_back("predicted");
  }
  if (source.measured) {
    traces.push_back(&source.measured->trace);
    const QString& pinned = source.measured->pinnedAs;
    names.push_back(pinned.isEmpty() ? std::string(nameOf(timesOf(*source.measured))) : "plan " + pinned.toStdString());
  }
  const std::string suffix = suffixOf(path), file = path.toStdString();
  if (suffix == "json") return writeFile(file, toChromeJson(traces, names));
  if (suffix == "csv") return writeFile(file, toSpanCsv(*traces.back()));
  throw UsageError(QObject::tr("%1 has an unsupported file type; use .png, .svg, .pdf, .csv or .json.").arg(path).toStdString());
}

void exportPicture(const TimelineWidget& timeline, const QSize& size, const QString& path) {
  QByteArray bytes;
  QBuffer buffer(&bytes);
  buffer.open(QIODevice::WriteOnly);
  if (suffixOf(path) == "pdf") {
    QPdfWriter pdf(&buffer);
    pdf.setResolution(96);
    pdf.setTitle(QFileInfo(path).completeBaseName());
    pdf.setPageMargins({});
    pdf.setPageSize(QPageSize(QSizeF(size) * 72.0 / 96.0, QPageSize::Point));
    QPainter painter(&pdf);
    timeline.render(painter, size, theme(false));  // paper is white
  } else if (suffixOf(path) == "svg") {
    QSvgGenerator svg;
    svg.setOutputDevice(&buffer);
    svg.setTitle(QFileInfo(path).completeBaseName());
    svg.setDescription(QStringLiteral("Pipewright"));
    svg.setResolution(96);
    svg.setSize(size);
    svg.setViewBox(QRect(QPoint(0, 0), size));
    QPainter painter(&svg);
    timeline.render(painter, size, theme(false));
  } else {
    QImage image(size * 2, QImage::Format_RGB32);
    image.setDevicePixelRatio(2);
    image.fill(currentTheme().background);
    QPainter painter(&image);
    timeline.render(painter, size, currentTheme());
    painter.end();
    if (!image.save(&buffer, "PNG"))
      throw Error(QObject::tr("Cannot create a picture of %1 by %2 pixels; make the window smaller.")
                      .arg(size.width())
                      .arg(size.height())
                      .toStdString());
  }
  writeFile(path.toStdString(), std::string_view(bytes.constData(), static_cast<std::size_t>(bytes.size())));
}

QStringList exportTorch(const Document& document, const QString& folder) {
  QStringList notes;
  for (const std::string& note : writeTorchPlan(document.plan(), *document.graph(), folder.toStdString()))
    notes << QString::fromStdString(note);
  return notes;
}

}  // namespace pw::gui
