#pragma once

#include <QFont>
#include <QImage>
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "schedules/ids.h"

class QPainter;

namespace pw::gui {

/// The time that a column of device pixels shows. Content columns are counted from `anchor`, so that already painted content still matches
/// newly painted content after the view has moved by whole pixels.
struct Columns {
  double anchor = 0;  ///< [ns] of content column 0
  double nsPerColumn = 1;
  std::int64_t offset = 0;  ///< content column of image column 0
  int width = 0;            ///< of the image

  /// Where in the image a time lies.
  [[nodiscard]] double exact(Ns time) const { return (static_cast<double>(time) - anchor) / nsPerColumn - static_cast<double>(offset); }
  /// The column edge nearest to a time; far outside the image: somewhere outside.
  [[nodiscard]] int edge(Ns time) const;
  /// The first whole nanosecond of a column.
  [[nodiscard]] Ns begin(int column) const;
};

/// A colour with one of Qt's patterns of 8 × 8 pixels in another one.
struct Fill {
  QRgb base = 0, mark = 0;
  Qt::BrushStyle pattern = Qt::SolidPattern;  ///< plain

  bool operator==(const Fill&) const = default;
};

/// A rectangle of pixels: columns [left, right), lines [top, bottom).
struct Box {
  int left = 0, top = 0, right = 0, bottom = 0;

  [[nodiscard]] int width() const { return right - left; }
  [[nodiscard]] int height() const { return bottom - top; }
};

/// `a` with `share` (0 … 1) of `b`; opaque.
[[nodiscard]] QRgb mixed(QRgb a, QRgb b, double share);

/// Draws a row. Into some columns of its image (RGB32) without QPainter, because rows consist of very many small rectangles; or with one,
/// for drawings that are to be scaled and edited.
class Canvas {
 public:
  /// Draws to columns [left, right) only. `phase`: content column of image column 0; patterns stick to the content.
  Canvas(QImage& image, int left, int right, std::int64_t phase);
  /// Draws rectangles and text with the painter, at these places of it.
  Canvas(QPainter& painter, const QRect& row);
  Canvas(const Canvas&) = delete;
  Canvas& operator=(const Canvas&) = delete;
  ~Canvas() { flush(); }

  [[nodiscard]] int left() const { return left_; }
  [[nodiscard]] int right() const { return right_; }
  [[nodiscard]] int height() const { return height_; }

  void fill(const Box& box, QRgb colour);
  void fill(const Box& box, const Fill& fill);
  void frame(const Box& box, int thickness, QRgb colour);
  /// Lines [top, bottom) of one column. Many columns side by side are much cheaper than as many boxes; they are gathered until `flush`, or
  /// until one elsewhere or anything else is drawn.
  void column(int x, int top, int bottom, const Fill& fill);
  void column(int x, int top, int bottom, QRgb colour) { column(x, top, bottom, Fill{colour}); }
  void flush();
  /// Mixes `colour` in by `alpha` (0 … 255). Not with a painter.
  void blend(int x, int y, QRgb colour, int alpha);
  /// With a painter: text that begins at (x, baseline). Returns false without one.
  [[nodiscard]] bool text(int x, int baseline, const QFont& font, std::string_view text, QRgb colour);

 private:
  void paint(const Box& box, const Fill& fill);

  [[nodiscard]] QRgb* line(int y) { return reinterpret_cast<QRgb*>(bits_ + static_cast<std::ptrdiff_t>(y) * stride_); }
  [[nodiscard]] Box clipped(const Box& box) const;

  QPainter* painter_ = nullptr;  ///< null: into the image
  QPoint origin_;                ///< with the painter
  uchar* bits_ = nullptr;
  std::ptrdiff_t stride_ = 0;
  int left_, right_, height_;
  unsigned phase_ = 0;
  // Columns [block_, block_ + kBlock) while they are painted: whole cache lines instead of one pixel in each of many.
  static constexpr int kBlock = 16;
  int block_ = -1;
  std::vector<QRgb> gathered_;  ///< by line
  /// With a painter: columns side by side that are alike become one rectangle.
  struct Run {
    Box box;
    Fill fill;
  };
  std::vector<Run> runs_;
};

/// The printable characters of ASCII in one font and size, ready to be blended: short labels by the thousand.
class Glyphs {
 public:
  Glyphs() = default;
  Glyphs(const QFont& font, double devicePixelRatio);

  [[nodiscard]] int width(std::string_view text) const;
  [[nodiscard]] int height() const { return height_; }  ///< of a capital letter or digit
  /// With the capital letters' upper left corner at (x, y).
  void draw(Canvas& canvas, int x, int y, std::string_view text, QRgb colour) const;

 private:
  struct Glyph {
    int advance = 0, width = 0;
    std::vector<std::uint8_t> alpha;
  };
  std::array<Glyph, 96> glyphs_;
  QFont font_;
  int height_ = 0;  ///< of capital letters
  int lines_ = 0;   ///< of a glyph image
  int above_ = 0;   ///< lines of a glyph image above the capital letters
  int beside_ = 1;  ///< columns of a glyph image left of its origin
};

}  // namespace pw::gui
