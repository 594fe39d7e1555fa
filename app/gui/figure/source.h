#pragma once

#include <QString>
#include <QStringList>
#include <memory>
#include <optional>
#include <vector>

#include "app/gui/document/document.h"
#include "simulator/timeline/figure.h"

namespace pw::gui {

/// Which steps a figure shows.
enum class FigureSteps : std::uint8_t { Predicted, Measured, Both };
constexpr std::string_view nameOf(FigureSteps steps) {
  switch (steps) {
    case FigureSteps::Predicted: return "predicted";
    case FigureSteps::Measured: return "measured";
    case FigureSteps::Both: return "both";
  }
  return {};
}

/// The document's steps, held so that figures of them can be drawn. Above a stored run stands what was predicted for its own plan.
struct FigureSource {
  std::optional<Trace> predicted;
  std::shared_ptr<const Measured> measured;
  QString model, schedule, store;
};
/// Throws UsageError where there is nothing to draw.
[[nodiscard]] FigureSource figureSource(const Document& document);

[[nodiscard]] bool has(const FigureSource& source, FigureSteps steps);
/// Of the pinned plan whose predicted step stands in the place of a measured one; empty: none does.
[[nodiscard]] QString pinnedName(const FigureSource& source);
/// What is drawn where nothing else is chosen: what was measured, else what is predicted.
[[nodiscard]] FigureSteps usualSteps(const FigureSource& source);
/// The title that a figure has where none is given, as that of `pipewright export`.
[[nodiscard]] QString usualTitle(const FigureSource& source, FigureSteps steps);

/// Lays out all chosen ranks, whatever the window shows. Throws UsageError. The source must live as long as the figure.
[[nodiscard]] Figure figureOf(const FigureSource& source, FigureSteps steps, const FigureStyle& style, const FigureFrame& frame = {});

/// The call of `pipewright export` that writes the same figure to `file` (.svg or .tex), and for .pdf and .png that of pipewright-gui, as a
/// line for a shell; empty where a pinned plan is drawn, which has no file. It reads the plan from `plan.json` where the prediction is
/// drawn, unless that is one of a stored run.
[[nodiscard]] QString figureCall(const FigureSource& source, FigureSteps steps, const FigureStyle& style, const QString& file, int dpi);
/// Whether that call reads `plan.json`.
[[nodiscard]] bool callNeedsPlan(const FigureSource& source, FigureSteps steps);

}  // namespace pw::gui
