#include "app/gui/cluster/figures.h"

#include <QLocale>
#include <QRegularExpression>
#include <array>
#include <cmath>
#include <cstdint>
#include <span>

#include "app/gui/document/default_times.h"

namespace pw::gui {
namespace {

// The limits of cluster files; those of times are the same as of the times of actions.
constexpr double kMostRate = 1e24;
constexpr double kMostMemory = 1152921504606846976.0;  ///< 2^60
constexpr double kLeastSpeed = 1e-3, kMostSpeed = 1e3;

struct Unit {
  const char* name;
  double scale;
};
constexpr std::array kTimes{Unit{"ns", 1}, Unit{"us", 1e3}, Unit{"µs", 1e3}, Unit{"μs", 1e3}, Unit{"ms", 1e6}, Unit{"s", 1e9}};
constexpr std::array kRates{Unit{"B/s", 1},        Unit{"KB/s", 1e3},        Unit{"MB/s", 1e6},           Unit{"GB/s", 1e9},
                            Unit{"TB/s", 1e12},    Unit{"MiB/s", 1048576.0}, Unit{"GiB/s", 1073741824.0}, Unit{"Mb/s", 1e6 / 8},
                            Unit{"Gb/s", 1e9 / 8}, Unit{"Tb/s", 1e12 / 8},   Unit{"Gbit/s", 1e9 / 8}};
constexpr std::array kSizes{Unit{"B", 1},           Unit{"KB", 1e3},           Unit{"MB", 1e6},
                            Unit{"GB", 1e9},        Unit{"TB", 1e12},          Unit{"KiB", 1024.0},
                            Unit{"MiB", 1048576.0}, Unit{"GiB", 1073741824.0}, Unit{"TiB", 1099511627776.0}};

/// Nothing below 0, above `most`, or of a unit that is none of these. A bare 0 needs none.
std::optional<double> figureIn(const QString& text, std::span<const Unit> units, double most) {
  static const QRegularExpression kForm(QStringLiteral("^\\s*([0-9]+(?:\\.[0-9]*)?(?:[eE]\\+?[0-9]{1,2})?)\\s*(\\S*)\\s*$"));
  const QRegularExpressionMatch match = kForm.match(text);
  if (!match.hasMatch()) return std::nullopt;
  bool isNumber = false;
  const double number = QLocale::c().toDouble(match.captured(1), &isNumber);
  if (!isNumber) return std::nullopt;
  const QString unit = match.captured(2);
  if (unit.isEmpty()) return number == 0 ? std::optional(0.0) : std::nullopt;
  for (const Unit& known : units) {
    if (unit != QString::fromUtf8(known.name)) continue;
    const double value = number * known.scale;
    return value <= most ? std::optional(value) : std::nullopt;
  }
  return std::nullopt;
}

/// The value in the first of these units in which it has at most three decimals.
QString inWhole(std::int64_t value, std::span<const std::pair<const char*, std::int64_t>> units) {
  for (const auto& [name, scale] : units) {
    if (value / scale == 0 && scale > 1) continue;
    if (value % scale != 0 && (scale % 1000 != 0 || value % (scale / 1000) != 0)) continue;
    const double number = static_cast<double>(value) / static_cast<double>(scale);
    return QLocale::c().toString(number, 'f', QLocale::FloatingPointShortest).remove(QLatin1Char(',')) + QLatin1Char(' ') +
           QString::fromUtf8(name);
  }
  return QString::number(value);
}

}  // namespace

std::optional<Ns> latencyIn(const QString& text) {
  const auto value = figureIn(text, kTimes, static_cast<double>(kLongestDefault.value));
  return value ? std::optional(static_cast<Ns>(std::llround(*value))) : std::nullopt;
}

QString latencyInput(Ns latency) {
  static constexpr std::array<std::pair<const char*, std::int64_t>, 4> kUnits{
      {{"s", 1'000'000'000}, {"ms", 1'000'000}, {"µs", 1'000}, {"ns", 1}}};
  return latency == 0 ? QStringLiteral("0 µs") : inWhole(latency.value, kUnits);
}

std::optional<double> bandwidthIn(const QString& text) {
  const auto value = figureIn(text, kRates, kMostRate);
  return value && (*value == 0 || *value >= 1) ? value : std::nullopt;
}

QString bandwidthInput(double bytesPerSecond) {
  const auto number = [](double value) { return QString::number(value, 'g', QLocale::FloatingPointShortest); };
  const QString usual = number(bytesPerSecond / 1e9) + QStringLiteral(" GB/s");
  return bandwidthIn(usual) == bytesPerSecond ? usual : number(bytesPerSecond) + QStringLiteral(" B/s");
}

std::optional<Bytes> memoryIn(const QString& text) {
  const auto value = figureIn(text, kSizes, kMostMemory);
  return value && *value >= 1 ? std::optional(static_cast<Bytes>(std::llround(*value))) : std::nullopt;
}

QString memoryInput(Bytes bytes) {
  static constexpr std::array<std::pair<const char*, std::int64_t>, 7> kUnits{{{"GB", 1'000'000'000},
                                                                               {"GiB", std::int64_t{1} << 30},
                                                                               {"MB", 1'000'000},
                                                                               {"MiB", std::int64_t{1} << 20},
                                                                               {"KB", 1'000},
                                                                               {"KiB", 1 << 10},
                                                                               {"B", 1}}};
  return inWhole(bytes.value, kUnits);
}

std::optional<double> speedIn(const QString& text) {
  bool isNumber = false;
  const double speed = QLocale::c().toDouble(text.trimmed(), &isNumber);
  return isNumber && speed >= kLeastSpeed && speed <= kMostSpeed ? std::optional(speed) : std::nullopt;
}

}  // namespace pw::gui
