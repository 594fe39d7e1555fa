#pragma once

#include <span>
#include <string>
#include <vector>

#include "app/gui/timeline/drawing/canvas.h"
#include "app/gui/timeline/drawing/scene.h"

namespace pw::gui {

/// Where something of that kind stands in a list by kind.
[[nodiscard]] constexpr std::size_t indexOf(SpanKind kind) { return static_cast<std::size_t>(kind); }

/// How spans look in one frame: fills by kind, stage or microbatch, with patterns, and faint ones.
class Look {
 public:
  Look(const Scene& scene, const Theme& theme);

  [[nodiscard]] const Theme& theme() const { return *theme_; }
  [[nodiscard]] Fill of(const SpanTag& tag) const;
  /// Of a measured span that took `error` (a share of the predicted time) longer; nothing: it matches no predicted one.
  [[nodiscard]] Fill ofDifference(std::optional<double> error) const;
  [[nodiscard]] Fill dimmed(const Fill& fill) const;  ///< of what is not highlighted
  /// Of the base line below a pixel column in which several blocks are merged, most of them of this fill.
  [[nodiscard]] QRgb ofBaseLine(const Fill& fill) const;
  [[nodiscard]] const Fill& bubble() const { return bubble_; }
  [[nodiscard]] QRgb background() const { return background_; }
  [[nodiscard]] QRgb highlight() const { return highlight_; }
  [[nodiscard]] QRgb text() const { return text_; }
  [[nodiscard]] QRgb textOn(const Fill& fill) const;

 private:
  [[nodiscard]] Fill patterned(QRgb base, SpanKind kind) const;

  const Theme* theme_;
  ColourBy by_;
  std::array<Fill, kSpanKinds> kinds_;
  std::vector<Fill> stages_;  ///< by stage, then kind
  Fill bubble_;
  QRgb background_, highlight_, text_;
};

/// The font of labels in this scene, `share` of the usual size.
[[nodiscard]] QFont sceneFont(const Scene& scene, double share = 1);

/// What a block is called: `F3`, `2F3` with its stage.
[[nodiscard]] std::string labelOf(const SpanTag& tag, bool withStage);

/// Heights of the kinds' shares in a merged column `height` pixels high, from the bottom up, without gaps; what is left is idle.
struct Stack {
  struct Part {
    SpanKind kind = SpanKind::Forward;
    int height = 0;
  };
  std::array<Part, kSpanKinds> parts;
  std::size_t count = 0;
};
/// `busy` within a column of `time` ns. A kind that took any time is at least 2 pixels high where there is room.
[[nodiscard]] Stack stackOf(const KindTimes& busy, double time, int height);

/// As `busyByKind` of a column [from, to) in which the spans [first, next) start; for a few spans.
[[nodiscard]] KindTimes busyOfFew(const SpanTrack& track, Ns from, Ns to, std::size_t first, std::size_t next);
/// Adds a time to the kind of the span at i; half of it for a slot's spans.
void addBusy(KindTimes& busy, const SpanTrack& track, std::size_t i, Ns time);

/// Lanes of a communication row: forward messages above backward ones, and reductions below where there are any.
[[nodiscard]] int messageLanes(const SpanTrack& track);
[[nodiscard]] int messageLane(SpanKind kind);
/// Lines [top, bottom) of a lane in a row `height` pixels high.
[[nodiscard]] std::pair<int, int> messageLaneLines(int lane, int lanes, int height);

}  // namespace pw::gui
