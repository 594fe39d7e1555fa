#pragma once

#include <gtest/gtest.h>

#include <QScrollBar>
#include <memory>
#include <utility>

#include "app/gui/document/document.h"
#include "app/gui/timeline/drawing/drawing_area.h"
#include "app/gui/timeline/knowledge.h"
#include "app/gui/timeline/place.h"
#include "app/gui/timeline/selection.h"
#include "app/gui/timeline/shown_timelines.h"
#include "simulator/timeline/fill.h"
#include "tests/app/gui/timeline/small_prediction.h"

namespace pw::gui {

/// The parts of a timeline without the widget that joins them, on a canvas of 1000 × 600 pixels that is never shown.
class PartsFixture : public testing::Test {
 protected:
  PartsFixture() { canvas.resize(1000, 600); }

  /// What a prediction would be measured as, taken over.
  ShownTimelines::Change measure(const Prediction& prediction) {
    auto measured = std::make_shared<Measured>();
    measured->trace = traceOf(prediction);
    measured->timeline = timelineOf(measured->trace);
    document.setMeasured(measured);
    const auto change = shown.takeMeasured();
    knowledge.forget(Source::Measured);
    return change;
  }
  void predict(const std::shared_ptr<const Prediction>& prediction) {
    scene.predicted = std::shared_ptr<const Timeline>(prediction, &prediction->timeline);
    knowledge.forget(Source::Predicted);
  }
  [[nodiscard]] SourcedSpan at(Source source, int rank, SpanKind kind, int stage, int microbatch) {
    const auto found = knowledge.dependencies(source)->find(Rank(rank), kind, Stage(stage), Microbatch(microbatch));
    EXPECT_TRUE(found);
    return {source, found.value_or(SpanRef{})};
  }

  Document document;
  Scene scene;
  ShownTimelines shown{document, scene};
  Knowledge knowledge{shown, scene};
  QWidget window;
  TimelineCanvas canvas{&window};
  QScrollBar bar{Qt::Vertical, &window};
  Place place{scene, canvas, bar};
  Selection selection{scene, knowledge, place};
};

}  // namespace pw::gui
