#pragma once

#include <QImage>
#include <map>
#include <utility>
#include <vector>

#include "app/gui/timeline/drawing/look.h"
#include "app/gui/timeline/drawing/rows.h"

namespace pw::gui {

/// A compute track over [0, end) in columns of equal time: the colours of what it did, by their shares, faded to that of a bubble by how
/// long it was idle. Coloured by stage or microbatch a column has the colour of the span that starts in it last. Cost: columns · log n.
[[nodiscard]] std::vector<QRgb> densityOf(const SpanTrack& track, Ns end, std::size_t columns, const Look& look, ColourBy by);

/// All rows of a layout over all time, as a small picture: a band for each compute row, several of them mixed where they share a line.
/// Keeps the rows' densities until `forget`, and the picture while layout, size and looks stay.
class DensityPicture {
 public:
  const QImage& of(const Scene& scene, const RowLayout& layout, const QSize& size, const Theme& theme);
  void forget() { densities_.clear(); }  ///< the timelines' times changed

 private:
  struct Band {
    Source source = Source::Predicted;
    Rank rank;
    int top = 0, bottom = 0;  ///< lines of the layout

    bool operator==(const Band&) const = default;
  };
  [[nodiscard]] static std::vector<Band> bandsOf(const RowLayout& layout);
  const std::vector<QRgb>& density(const Scene& scene, const Band& band, const Look& look);
  void compose(const Scene& scene, int layoutHeight, const Look& look);

  std::map<std::pair<Source, std::int32_t>, std::vector<QRgb>> densities_;
  std::vector<Band> bands_;
  std::size_t columns_ = 0;
  ColourBy by_ = ColourBy::Kind;
  bool dark_ = false;
  QImage image_;
};

}  // namespace pw::gui
