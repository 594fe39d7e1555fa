#include "app/gui/figure/files.h"

#include <QBuffer>
#include <QFileInfo>
#include <QImage>
#include <QObject>
#include <QPageSize>
#include <QPainter>
#include <QPdfWriter>
#include <cmath>

#include "app/gui/figure/painter.h"
#include "backends/host/files.h"
#include "schedules/error.h"
#include "simulator/timeline/svg.h"
#include "simulator/timeline/tikz.h"

namespace pw::gui {
namespace {

constexpr double kMmPerInch = 25.4;

QString suffixOf(const QString& path) { return QFileInfo(path).suffix().toLower(); }

QByteArray pngOf(const Figure& figure, int dpi) {
  constexpr double kMostPixels = 150e6;
  const double perMm = dpi / kMmPerInch;
  const double width = std::ceil(figure.width * perMm), height = std::ceil(figure.height * perMm);
  if (width * height > kMostPixels || width > 32'000 || height > 32'000)
    throw UsageError(QObject::tr("A picture of %1 by %2 pixels is too large; use fewer dots per inch, or PDF.")
                         .arg(width, 0, 'f', 0)
                         .arg(height, 0, 'f', 0)
                         .toStdString());
  QImage image(static_cast<int>(width), static_cast<int>(height), QImage::Format_RGB32);
  image.fill(Qt::white);
  image.setDotsPerMeterX(static_cast<int>(std::lround(perMm * 1000)));
  image.setDotsPerMeterY(image.dotsPerMeterX());
  QPainter painter(&image);
  paintFigure(painter, figure, perMm);
  painter.end();
  QByteArray bytes;
  QBuffer buffer(&bytes);
  buffer.open(QIODevice::WriteOnly);
  if (!image.save(&buffer, "PNG")) throw Error(QObject::tr("Cannot encode the picture as PNG; use PDF or SVG.").toStdString());
  return bytes;
}

}  // namespace

bool isFigureFile(const QString& path) {
  const QString suffix = suffixOf(path);
  return suffix == QLatin1String("svg") || suffix == QLatin1String("pdf") || suffix == QLatin1String("png") ||
         suffix == QLatin1String("tex");
}

FigureFrame frameFor(const QString& path) { return suffixOf(path) == QLatin1String("tex") ? kTikzFrame : FigureFrame{}; }

QByteArray pdfOf(const Figure& figure) {
  constexpr int kDotsPerInch = 1200;
  QByteArray bytes;
  QBuffer buffer(&bytes);
  buffer.open(QIODevice::WriteOnly);
  QPdfWriter pdf(&buffer);
  pdf.setResolution(kDotsPerInch);
  pdf.setTitle(QString::fromStdString(figure.title));
  pdf.setCreator(QStringLiteral("Pipewright"));
  pdf.setPageSize(QPageSize(QSizeF(figure.width, figure.height), QPageSize::Millimeter, QString(), QPageSize::ExactMatch));
  pdf.setPageMargins({});
  QPainter painter(&pdf);
  paintFigure(painter, figure, kDotsPerInch / kMmPerInch);
  painter.end();
  return bytes;
}

void writeFigure(const Figure& figure, const QString& path, int dpi) {
  const QString suffix = suffixOf(path);
  if (suffix == QLatin1String("svg")) return writeFile(path.toStdString(), toSvg(figure));
  if (suffix == QLatin1String("tex")) return writeFile(path.toStdString(), toTikz(figure));
  if (!isFigureFile(path))
    throw UsageError(QObject::tr("%1 has an unsupported file type; use .svg, .pdf, .png, or .tex for TikZ.").arg(path).toStdString());
  const QByteArray bytes = suffix == QLatin1String("pdf") ? pdfOf(figure) : pngOf(figure, dpi);
  writeFile(path.toStdString(), std::string_view(bytes.constData(), static_cast<std::size_t>(bytes.size())));
}

}  // namespace pw::gui
