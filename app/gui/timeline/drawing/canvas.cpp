#include "app/gui/timeline/drawing/canvas.h"

#include <QFontMetrics>
#include <QPainter>
#include <algorithm>
#include <cmath>

#include "app/gui/common/format.h"

namespace pw::gui {
namespace {

using Mask = std::array<std::uint8_t, 8>;  ///< by line, a bit for each column; all 0: plain

Mask drawnMask(Qt::BrushStyle style) {
  Mask mask{};
  if (style == Qt::SolidPattern || style == Qt::NoBrush) return mask;
  QImage image(8, 8, QImage::Format_RGB32);
  image.fill(Qt::white);
  QPainter painter(&image);
  painter.fillRect(image.rect(), QBrush(Qt::black, style));
  painter.end();
  for (int y = 0; y < 8; ++y) {
    for (int x = 0; x < 8; ++x) {
      if (qGray(image.pixel(x, y)) < 128) mask[static_cast<std::size_t>(y)] |= static_cast<std::uint8_t>(1 << x);
    }
  }
  return mask;
}

/// Qt's pattern as bits; drawn once, because every frame needs it.
const Mask& maskOf(Qt::BrushStyle style) {
  static const auto masks = [] {
    std::array<Mask, Qt::DiagCrossPattern + 1> drawn{};
    for (int s = 0; s <= Qt::DiagCrossPattern; ++s) drawn[static_cast<std::size_t>(s)] = drawnMask(static_cast<Qt::BrushStyle>(s));
    return drawn;
  }();
  return masks[static_cast<std::size_t>(style)];
}

}  // namespace

int Columns::edge(Ns time) const {
  constexpr int kOutside = 4000;
  return static_cast<int>(std::clamp(std::floor(exact(time) + 0.5), -static_cast<double>(kOutside), static_cast<double>(width + kOutside)));
}

Ns Columns::begin(int column) const { return static_cast<Ns>(std::ceil(anchor + static_cast<double>(offset + column) * nsPerColumn)); }

QRgb mixed(QRgb a, QRgb b, double share) {
  const int part = static_cast<int>(std::lround(share * 256));
  const auto channel = [part](int from, int to) { return from + ((to - from) * part + 128) / 256; };
  return qRgb(channel(qRed(a), qRed(b)), channel(qGreen(a), qGreen(b)), channel(qBlue(a), qBlue(b)));
}

Canvas::Canvas(QImage& image, int left, int right, std::int64_t phase)
    : bits_(image.bits()),
      stride_(image.bytesPerLine()),
      left_(std::max(0, left)),
      right_(std::min(image.width(), right)),
      height_(image.height()),
      phase_(static_cast<unsigned>(phase & 7)) {}

Canvas::Canvas(QPainter& painter, const QRect& row)
    : painter_(&painter), origin_(row.topLeft()), left_(0), right_(row.width()), height_(row.height()) {}

void Canvas::paint(const Box& box, const Fill& fill) {
  const QRect rect(origin_.x() + box.left, origin_.y() + box.top, box.width(), box.height());
  painter_->fillRect(rect, QColor(fill.base));
  if (fill.pattern != Qt::SolidPattern) painter_->fillRect(rect, QBrush(QColor(fill.mark), fill.pattern));
}

bool Canvas::text(int x, int baseline, const QFont& font, std::string_view text, QRgb colour) {
  if (painter_ == nullptr) return false;
  flush();
  painter_->setFont(font);
  painter_->setPen(QColor(colour));
  painter_->drawText(origin_ + QPoint(x, baseline), textOf(text));
  return true;
}

void Canvas::flush() {
  for (const Run& run : runs_) paint(run.box, run.fill);
  runs_.clear();
  if (block_ < 0) return;
  const int from = std::max(block_, left_), to = std::min(block_ + kBlock, right_);
  for (int y = 0; y < height_; ++y) {
    const QRgb* const source = gathered_.data() + static_cast<std::ptrdiff_t>(y) * kBlock;
    std::copy(source + (from - block_), source + (to - block_), line(y) + from);
  }
  block_ = -1;
}

void Canvas::column(int x, int top, int bottom, const Fill& fill) {
  if (x < left_ || x >= right_) return;
  if (painter_ != nullptr) {
    const auto goesOn = [&](const Run& run) {
      return run.box.right == x && run.box.top == top && run.box.bottom == bottom && run.fill == fill;
    };
    if (const auto run = std::ranges::find_if(runs_, goesOn); run != runs_.end()) {
      run->box.right = x + 1;
      return;
    }
    if (!runs_.empty() && std::ranges::none_of(runs_, [&](const Run& run) { return run.box.right >= x; })) flush();
    const Box box = clipped({x, top, x + 1, bottom});
    if (box.bottom > box.top) runs_.push_back({box, fill});
    return;
  }
  if (block_ < 0 || x < block_ || x >= block_ + kBlock) {
    flush();
    block_ = x - x % kBlock;
    gathered_.resize(static_cast<std::size_t>(height_) * kBlock);
    const int from = std::max(block_, left_), to = std::min(block_ + kBlock, right_);
    for (int y = 0; y < height_; ++y)
      std::copy(line(y) + from, line(y) + to, gathered_.data() + static_cast<std::ptrdiff_t>(y) * kBlock + (from - block_));
  }
  top = std::max(top, 0);
  bottom = std::min(bottom, height_);
  QRgb* to = gathered_.data() + static_cast<std::ptrdiff_t>(top) * kBlock + (x - block_);
  const unsigned bit = 1U << ((static_cast<unsigned>(x) + phase_) & 7);
  const Mask& mask = maskOf(fill.pattern);
  for (int y = top; y < bottom; ++y, to += kBlock) *to = (mask[static_cast<std::size_t>(y) & 7] & bit) != 0 ? fill.mark : fill.base;
}

Box Canvas::clipped(const Box& box) const {
  return {std::max(box.left, left_), std::max(box.top, 0), std::min(box.right, right_), std::min(box.bottom, height_)};
}

void Canvas::fill(const Box& box, QRgb colour) { fill(box, Fill{colour}); }

void Canvas::fill(const Box& box, const Fill& fill) {
  const Box b = clipped(box);
  if (b.right <= b.left || b.bottom <= b.top) return;
  flush();
  if (painter_ != nullptr) return paint(b, fill);
  const Mask& mask = maskOf(fill.pattern);
  for (int y = b.top; y < b.bottom; ++y) {
    QRgb* const to = line(y);
    const unsigned marks = mask[static_cast<std::size_t>(y) & 7];
    if (marks == 0) {
      std::fill(to + b.left, to + b.right, fill.base);
      continue;
    }
    std::array<QRgb, 8> tile{};
    for (unsigned x = 0; x < 8; ++x) tile[x] = (marks >> ((x + phase_) & 7) & 1) != 0 ? fill.mark : fill.base;
    for (int x = b.left; x < b.right; ++x) to[x] = tile[static_cast<unsigned>(x) & 7];
  }
}

void Canvas::frame(const Box& box, int thickness, QRgb colour) {
  const int t = std::min({thickness, box.width(), box.height()});
  fill(Box{box.left, box.top, box.right, box.top + t}, colour);
  fill(Box{box.left, box.bottom - t, box.right, box.bottom}, colour);
  fill(Box{box.left, box.top, box.left + t, box.bottom}, colour);
  fill(Box{box.right - t, box.top, box.right, box.bottom}, colour);
}

void Canvas::blend(int x, int y, QRgb colour, int alpha) {
  if (x < left_ || x >= right_ || y < 0 || y >= height_) return;
  flush();
  QRgb& to = line(y)[x];
  const auto channel = [alpha](int from, int target) { return from + ((target - from) * alpha + 127) / 255; };
  to = qRgb(channel(qRed(to), qRed(colour)), channel(qGreen(to), qGreen(colour)), channel(qBlue(to), qBlue(colour)));
}

Glyphs::Glyphs(const QFont& font, double devicePixelRatio) : font_(font) {
  QFont& scaled = font_;
  scaled.setPixelSize(std::max(1, static_cast<int>(std::lround(font.pixelSize() * devicePixelRatio))));
  scaled.setKerning(false);
  const QFontMetrics metrics(scaled);
  height_ = metrics.capHeight();
  above_ = metrics.ascent() - height_;
  lines_ = metrics.height();
  for (std::size_t g = 0; g < glyphs_.size(); ++g) {
    const QChar letter(static_cast<char16_t>(32 + g));
    Glyph& glyph = glyphs_[g];
    glyph.advance = metrics.horizontalAdvance(letter);
    glyph.width = glyph.advance + 2 * beside_;
    QImage image(glyph.width, lines_, QImage::Format_Grayscale8);
    image.fill(0);
    QPainter painter(&image);
    painter.setFont(scaled);
    painter.setPen(Qt::white);
    painter.drawText(QPoint(beside_, metrics.ascent()), QString(letter));
    painter.end();
    for (int y = 0; y < lines_; ++y) glyph.alpha.insert(glyph.alpha.end(), image.constScanLine(y), image.constScanLine(y) + glyph.width);
  }
}

int Glyphs::width(std::string_view text) const {
  int sum = 0;
  for (const char c : text) sum += c >= 32 && c < 127 ? glyphs_[static_cast<std::size_t>(c - 32)].advance : 0;
  return sum;
}

void Glyphs::draw(Canvas& canvas, int x, int y, std::string_view text, QRgb colour) const {
  if (canvas.text(x, y + height_, font_, text, colour)) return;
  for (const char c : text) {
    if (c < 32 || c >= 127) continue;
    const Glyph& glyph = glyphs_[static_cast<std::size_t>(c - 32)];
    const std::uint8_t* alpha = glyph.alpha.data();
    for (int line = 0; line < lines_; ++line) {
      for (int column = 0; column < glyph.width; ++column, ++alpha) {
        if (*alpha != 0) canvas.blend(x + column - beside_, y + line - above_, colour, *alpha);
      }
    }
    x += glyph.advance;
  }
}

}  // namespace pw::gui
