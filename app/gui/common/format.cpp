#include "app/gui/common/format.h"

#include <QCoreApplication>
#include <array>
#include <cmath>

#include "schedules/editing/waiting.h"
#include "schedules/units.h"
#include "simulator/text/three_digits.h"

namespace pw::gui {

QString translated(const char* text, const char* comment, int count) {
  return QCoreApplication::translate("pw::gui", text, comment, count);
}

QString textOf(std::string_view text) { return QString::fromUtf8(text.data(), static_cast<qsizetype>(text.size())); }

QString capitalised(QString sentence) {
  if (!sentence.isEmpty()) sentence[0] = sentence[0].toUpper();
  return sentence;
}

QString actionText(const Action& action) { return QString::fromStdString(describe(action)); }

QString durationText(Ns time) { return QString::fromStdString(formatDuration(time)); }

QString sizeText(Bytes bytes) { return QString::fromStdString(formatSize(bytes)); }

QString percentText(double fraction, int decimals) {
  const QString number = QString::number(fraction * 100, 'f', decimals);
  const bool isSmall = fraction > 0 && number.toDouble() == 0;
  return (isSmall ? QStringLiteral("< %1").arg(std::pow(10, -decimals), 0, 'f', decimals) : number) + QStringLiteral(" %");
}

QString signedPercentText(double fraction) {
  return (fraction < 0 ? QStringLiteral("−") : QStringLiteral("+")) + QString::number(std::abs(fraction) * 100, 'f', 1) +
         QStringLiteral(" %");
}

QString countText(double number) {
  static constexpr std::array<const char*, 5> kUnits{"", " k", " M", " G", " T"};
  std::size_t unit = 0;
  while (std::abs(number) >= 999.5 && unit + 1 < kUnits.size()) {
    number /= 1000;
    ++unit;
  }
  if (unit == 0) return QString::fromStdString(threeDigits(number));
  return QString::number(number, 'f', std::abs(number) >= 99.95 ? 0 : std::abs(number) >= 9.995 ? 1 : 2) + QLatin1String(kUnits[unit]);
}

}  // namespace pw::gui
