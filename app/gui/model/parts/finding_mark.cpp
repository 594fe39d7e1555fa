#include "app/gui/model/parts/finding_mark.h"

#include <QCoreApplication>
#include <QPainter>
#include <QPixmap>
#include <QPolygonF>

#include "app/gui/common/format.h"
#include "app/gui/common/theme.h"

namespace pw::gui {

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

QString findingsText(const std::vector<const Finding*>& findings) {
  constexpr int kMostKinds = 3;
  const auto tr = [](const char* text) { return QCoreApplication::translate("Findings", text); };
  QString text;
  int kinds = 0;
  for (std::size_t f = 0, next = 0; f < findings.size(); f = next) {
    while (next < findings.size() && findings[next]->kind == findings[f]->kind) ++next;
    if (++kinds > kMostKinds) continue;
    const auto places = static_cast<int>(next - f);
    text += QStringLiteral("<p><b>%1</b>, %2: %3</p>")
                .arg(findingTitle(findings[f]->kind),
                     places == 1 ? QString::fromStdString(findings[f]->op).toHtmlEscaped() : tr("%1 places").arg(places),
                     findingExplanation(findings[f]->kind).toHtmlEscaped());
  }
  return kinds > kMostKinds ? text + QStringLiteral("<p>%1</p>").arg(tr("… and %1 more kinds of findings").arg(kinds - kMostKinds)) : text;
}

}  // namespace pw::gui
