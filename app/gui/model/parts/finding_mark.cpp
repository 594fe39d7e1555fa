#include "app/gui/model/parts/finding_mark.h"

#include <QCoreApplication>
#include <QPainter>
#include <QPixmap>
#include <QPolygonF>
#include <string_view>

#include "app/gui/common/theme.h"

namespace pw::gui {
namespace {

QString textOf(std::string_view text) { return QString::fromUtf8(text.data(), static_cast<qsizetype>(text.size())); }

}  // namespace

void paintFindingMark(QPainter& painter, const QRectF& square, FindingEffect effect) {
  if (effect == FindingEffect::Note) return;
  const Theme& theme = currentTheme();
  const QColor fill = effect == FindingEffect::Limits ? theme.error : theme.warning;
  painter.save();
  painter.setRenderHint(QPainter::Antialiasing);
  painter.setPen(Qt::NoPen);
  painter.setBrush(fill);
  if (effect == FindingEffect::Limits)
    painter.drawEllipse(square);
  else
    painter.drawPolygon(QPolygonF({QPointF(square.center().x(), square.top()), square.bottomRight(), square.bottomLeft()}));
  QFont font = painter.font();
  font.setItalic(false);
  font.setBold(true);
  font.setPixelSize(std::max(1, static_cast<int>(square.height() * 0.7)));
  painter.setFont(font);
  painter.setPen(textOn(fill));
  painter.drawText(square.adjusted(0, effect == FindingEffect::Limits ? 0 : square.height() * 0.2, 0, 0), Qt::AlignCenter,
                   QStringLiteral("!"));
  painter.restore();
}

QIcon findingIcon(FindingEffect effect, int size) {
  QPixmap picture(size, size);
  picture.fill(Qt::transparent);
  QPainter painter(&picture);
  paintFindingMark(painter, QRectF(0, 0, size, size), effect);
  return QIcon(picture);
}

QString findingTitle(FindingKind kind) { return textOf(factsOf(kind).name).replace(QLatin1Char('-'), QLatin1Char(' ')); }

QString findingExplanation(FindingKind kind) {
  const FindingFacts& facts = factsOf(kind);
  return QCoreApplication::translate("pw::gui::Findings", "%1. What to do: %2.").arg(textOf(facts.meaning), textOf(facts.cure));
}

}  // namespace pw::gui
