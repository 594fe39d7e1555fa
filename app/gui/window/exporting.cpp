#include "app/gui/window/exporting.h"

#include <QAbstractItemModel>
#include <QBuffer>
#include <QFileInfo>
#include <QPainter>
#include <QPdfWriter>
#include <QPixmap>
#include <cstdlib>

#include "app/gui/common/theme.h"
#include "app/gui/timeline/widget.h"
#include "backends/host/files.h"
#include "backends/resources/torch_export.h"
#include "schedules/error.h"
#include "simulator/timeline/chrome.h"
#include "simulator/timeline/svg.h"
#include "simulator/trace/trace_csv.h"

namespace pw::gui {
namespace {

constexpr int kSvgWidth = 1200;

/// The height an SVG drawing states.
int heightOf(const std::string& svg) {
  const auto at = svg.find("height=\"");
  return at == std::string::npos ? 0 : std::atoi(svg.c_str() + at + 8);
}

/// One drawing below the other.
std::string stackedSvg(const std::vector<const Trace*>& traces, const std::vector<std::string>& names, const std::string& title) {
  if (traces.size() == 1) return toSvg(*traces.front(), {.title = title, .width = kSvgWidth});
  std::string inside;
  int height = 0;
  for (std::size_t i = 0; i < traces.size(); ++i) {
    std::string svg = toSvg(*traces[i], {.title = title + ", " + names[i], .width = kSvgWidth});
    const auto begin = svg.find("<svg ");
    svg = svg.substr(begin == std::string::npos ? 0 : begin);
    inside += svg.insert(5, "y=\"" + std::to_string(height) + "\" ");
    height += heightOf(svg);
  }
  return "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + std::to_string(kSvgWidth) + "\" height=\"" + std::to_string(height) +
         "\">\n" + inside + "</svg>\n";
}

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

bool isPicture(const QString& path) { return suffixOf(path) == "png" || suffixOf(path) == "pdf"; }

void exportData(const ExportSource& source, const QString& path) {
  if (!source.prediction && !source.measured)
    throw UsageError(QObject::tr("There is no timeline to export; open a model, schedule or trace first.").toStdString());
  const Trace predicted = source.prediction ? traceOf(*source.prediction) : Trace{};
  std::vector<const Trace*> traces;
  std::vector<std::string> names;
  if (source.prediction) {
    traces.push_back(&predicted);
    names.push_back("predicted");
  }
  if (source.measured) {
    traces.push_back(&source.measured->trace);
    names.push_back("measured");
  }
  const std::string suffix = suffixOf(path), file = path.toStdString();
  if (suffix == "json") return writeFile(file, toChromeJson(traces, names));
  if (suffix == "svg") return writeFile(file, stackedSvg(traces, names, source.title.toStdString()));
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
    pdf.setPageMargins({});
    pdf.setPageSize(QPageSize(QSizeF(size) * 72.0 / 96.0, QPageSize::Point));
    QPainter painter(&pdf);
    timeline.render(painter, size, theme(false));  // paper is white
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
