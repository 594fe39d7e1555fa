#pragma once

#include <QString>
#include <optional>

#include "schedules/ids.h"

namespace pw::gui {

// Figures of hardware as people type them, and back. The texts are exact: what was read from one is written as the same value. Numbers have
// a point, whatever the locale; units may follow a space. Nothing where a text is no such figure, or larger than clusters can have.

/// `5 µs`, `5us`, `1.5 ms`; 0 needs no unit.
[[nodiscard]] std::optional<Ns> latencyIn(const QString& text);
[[nodiscard]] QString latencyInput(Ns latency);

/// Bytes per second: `450 GB/s`, `1.8 TB/s`, `400 Gb/s` (bits: 50 GB/s), `24 GiB/s`. 0: messages take the latency only.
[[nodiscard]] std::optional<double> bandwidthIn(const QString& text);
[[nodiscard]] QString bandwidthInput(double bytesPerSecond);

/// `80 GB`, `37.5 GiB`.
[[nodiscard]] std::optional<Bytes> memoryIn(const QString& text);
[[nodiscard]] QString memoryInput(Bytes bytes);

/// Relative to the others: 0.001 to 1000.
[[nodiscard]] std::optional<double> speedIn(const QString& text);

}  // namespace pw::gui
