#include "app/gui/timeline/overview/density.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace pw::gui {
namespace {

constexpr std::size_t kMostSamples = 300'000;  ///< columns of all ranks together: some tens of milliseconds
constexpr std::size_t kFewestColumns = 200;

/// A sum of colours.
struct Mixture {
  std::array<double, 3> sum{};
  double weight = 0;

  void add(QRgb colour, double share) {
    sum[0] += share * qRed(colour);
    sum[1] += share * qGreen(colour);
    sum[2] += share * qBlue(colour);
    weight += share;
  }
  [[nodiscard]] QRgb mean() const {
    const auto part = [&](std::size_t i) { return static_cast<int>(std::lround(sum[i] / weight)); };
    return qRgb(part(0), part(1), part(2));
  }
};

}  // namespace

std::vector<QRgb> densityOf(const SpanTrack& track, Ns end, std::size_t columns, const Look& look, ColourBy by) {
  std::vector<QRgb> colours(columns, look.bubble().base);
  if (track.size() == 0 || end <= 0) return colours;
  KindTimes before{};
  Ns from = 0;
  std::size_t next = 0;
  for (std::size_t c = 0; c < columns; ++c) {
    const Ns to = static_cast<Ns>(std::llround(static_cast<double>(end) * static_cast<double>(c + 1) / static_cast<double>(columns)));
    next = firstFrom(track, to, next);
    const KindTimes after = busyBefore(track, to, next);
    Mixture mixture;
    for (std::size_t k = 0; k < kSpanKinds; ++k) {
      const auto busy = static_cast<double>(after[k] - before[k]);
      if (busy > 0) mixture.add(look.of({static_cast<SpanKind>(k), Stage(-1), Microbatch(-1), {}}).base, busy);
    }
    if (mixture.weight > 0) {
      const QRgb busy = by == ColourBy::Kind || next == 0 ? mixture.mean() : look.of(track.tags[next - 1]).base;
      const double share = mixture.weight / static_cast<double>(std::max<Ns>(1, to - from));
      colours[c] = share >= 1 ? busy : mixed(look.bubble().base, busy, share);
    }
    before = after;
    from = to;
  }
  return colours;
}

std::vector<DensityPicture::Band> DensityPicture::bandsOf(const RowLayout& layout) {
  std::vector<Band> bands;
  for (const Row& row : layout.rows) {
    if (row.kind != Row::Kind::Compute) continue;
    if (!bands.empty()) bands.back().bottom = row.top;
    bands.push_back({row.source, row.rank, row.top, layout.height});
  }
  return bands;
}

const std::vector<QRgb>& DensityPicture::density(const Scene& scene, const Band& band, const Look& look) {
  std::vector<QRgb>& known = densities_[{band.source, band.rank.value}];
  if (!known.empty()) return known;
  const Timeline* timeline = timelineFrom(scene, band.source);
  static const SpanTrack kNone;
  const bool isThere = timeline != nullptr && band.rank.index() < timeline->ranks.size();
  known = densityOf(isThere ? timeline->ranks[band.rank.index()].compute : kNone, endOf(scene), columns_, look, scene.colourBy);
  return known;
}

/// Fills the image from the bands.
void DensityPicture::compose(const Scene& scene, int layoutHeight, const Look& look) {
  const int height = image_.height(), width = image_.width();
  const double linesOfLayout = static_cast<double>(layoutHeight) / height;
  std::size_t first = 0;
  std::vector<Mixture> mixtures(columns_);
  for (int y = 0; y < height; ++y) {
    const double top = y * linesOfLayout, bottom = (y + 1) * linesOfLayout;
    while (first + 1 < bands_.size() && bands_[first].bottom <= top) ++first;
    std::fill(mixtures.begin(), mixtures.end(), Mixture{});
    const auto share = [&](const Band& band) { return std::min<double>(band.bottom, bottom) - std::max<double>(band.top, top); };
    std::size_t last = first;
    while (last + 1 < bands_.size() && bands_[last + 1].top < bottom) ++last;
    std::size_t begin = first;
    if (by_ != ColourBy::Kind) {  // a mixture of stages would be grey: the band that has most of the line
      for (std::size_t b = first; b <= last; ++b) begin = share(bands_[b]) > share(bands_[begin]) ? b : begin;
      last = begin;
    }
    for (std::size_t b = begin; b <= last; ++b) {
      const double weight = std::max(1e-3, share(bands_[b]));
      const std::vector<QRgb>& colours = density(scene, bands_[b], look);
      for (std::size_t c = 0; c < columns_; ++c) mixtures[c].add(colours[c], weight);
    }
    auto* const line = reinterpret_cast<QRgb*>(image_.scanLine(y));
    for (int x = 0; x < width; ++x) line[x] = mixtures[static_cast<std::size_t>(x) * columns_ / static_cast<std::size_t>(width)].mean();
  }
}

const QImage& DensityPicture::of(const Scene& scene, const RowLayout& layout, const QSize& size, const Theme& theme) {
  std::vector<Band> bands = bandsOf(layout);
  if (bands.empty() || size.isEmpty()) return image_ = QImage();
  const std::size_t most = std::max(kFewestColumns, kMostSamples / bands.size());
  const std::size_t columns = std::min(static_cast<std::size_t>(size.width()), most);
  if (columns != columns_ || scene.colourBy != by_ || theme.dark != dark_) forget();
  if (!densities_.empty() && bands == bands_ && image_.size() == size) return image_;
  bands_ = std::move(bands);
  columns_ = columns;
  by_ = scene.colourBy;
  dark_ = theme.dark;
  image_ = QImage(size, QImage::Format_RGB32);
  compose(scene, layout.height, Look(scene, theme));
  return image_;
}

}  // namespace pw::gui
