#pragma once

#include <gtest/gtest.h>

#include <QApplication>
#include <QMouseEvent>
#include <QSignalSpy>
#include <QTest>
#include <QWheelEvent>
#include <algorithm>
#include <functional>
#include <memory>
#include <string_view>

#include "app/gui/document/document.h"
#include "app/gui/document/loading.h"
#include "app/gui/timeline/drawing/rows.h"
#include "app/gui/timeline/facts/dependencies.h"
#include "app/gui/timeline/widget.h"
#include "simulator/timeline/fill.h"
#include "tests/app/gui/timeline/small_prediction.h"

namespace pw::gui {

/// A timeline widget over a document with a schedule of synthetic costs: 1F1B on 4 ranks with 8 microbatches.
class TimelineFixture : public testing::Test {
 protected:
  void SetUp() override {
    widget.resize(1000, 700);
    widget.show();
    open("1f1b", 4, 8);
  }

  void open(std::string_view schedule, int ranks, int microbatches) {
    const Schedule compute = generate(schedule, {ranks, ranks * generatorOf(schedule).chunks, microbatches});
    Loaded loaded;
    loaded.hasDesign = true;
    loaded.design.customRows = std::make_shared<const Schedule>(lower(compute));
    loaded.design.customCosts = std::make_shared<const CostTable>(smallCosts(static_cast<int>(compute.placement.stages())));
    document.adopt(loaded);
    await();
  }
  void await() {
    ASSERT_TRUE(QTest::qWaitFor([this] { return !document.isPredicting() && document.prediction() != nullptr; }, 10'000));
    dependencies = std::make_unique<Dependencies>(timeline(), linksOf(document.prediction()->costs));
  }
  /// The same schedule with other times.
  void recost(const std::function<void(CostTable&)>& change) {
    document.edit(QStringLiteral("times"), [&](Design& design) {
      CostTable costs = *design.customCosts;
      change(costs);
      design.customCosts = std::make_shared<const CostTable>(costs);
    });
    await();
  }
  /// What the same schedule would be measured as with other times.
  void measure(const std::function<void(CostTable&)>& change) {
    CostTable costs = document.prediction()->costs;
    change(costs);
    auto measured = std::make_shared<Measured>();
    measured->title = QStringLiteral("run 1");
    measured->trace = traceOf(*Predictor().predict(document.prediction()->rows, costs));
    measured->timeline = timelineOf(measured->trace);
    document.setMeasured(measured);
  }

  [[nodiscard]] const Timeline& timeline() const { return document.prediction()->timeline; }
  [[nodiscard]] QWidget* canvas() const { return widget.findChild<QWidget*>(QStringLiteral("timelineCanvas")); }
  [[nodiscard]] SourcedSpan at(int rank, SpanKind kind, int stage, int microbatch, Source source = Source::Predicted) const {
    const auto found = dependencies->find(Rank(rank), kind, Stage(stage), Microbatch(microbatch));
    EXPECT_TRUE(found);
    return {source, found.value_or(SpanRef{})};
  }
  [[nodiscard]] std::optional<SourcedSpan> selected() const { return widget.scene().selected; }

  // ---- Where things are on the canvas ----
  [[nodiscard]] int xOf(Ns time) const { return labelWidth(widget.scene()) + static_cast<int>(widget.viewport().xOf(time)); }
  [[nodiscard]] int yOf(int rank, Row::Kind kind = Row::Kind::Compute, Source source = Source::Predicted) const {
    for (const Row& row : layOutRows(widget.scene()).rows) {
      if (row.rank.value == rank && row.kind == kind && row.source == source) return rulerHeight(widget.scene()) + row.top + row.height / 2;
    }
    ADD_FAILURE() << "no row of rank " << rank;
    return 0;
  }
  [[nodiscard]] QPoint middleOf(const SourcedSpan& span) const {
    const Span s = spanOf(span.source == Source::Predicted ? *widget.scene().predicted : *widget.scene().measured, span.span);
    const int x = xOf((s.start + s.end) / 2), rank = span.span.rank.value;
    if (span.span.track == TrackKind::Compute) return {x, yOf(rank, Row::Kind::Compute, span.source)};
    // Activations in the upper half of the row, gradients in the lower one.
    return {x, yOf(rank, Row::Kind::Communication, span.source) + (s.kind == SpanKind::SendForward ? -4 : 4)};
  }

  // ---- Events ----
  void mouse(QEvent::Type type, QPoint where, Qt::MouseButton button, Qt::MouseButtons buttons) {
    QMouseEvent event(type, where, canvas()->mapToGlobal(QPointF(where)), button, buttons, Qt::NoModifier);
    QApplication::sendEvent(canvas(), &event);
  }
  void moveTo(QPoint where) { mouse(QEvent::MouseMove, where, Qt::NoButton, Qt::NoButton); }
  void click(QPoint where) {
    mouse(QEvent::MouseButtonPress, where, Qt::LeftButton, Qt::LeftButton);
    mouse(QEvent::MouseButtonRelease, where, Qt::LeftButton, Qt::NoButton);
  }
  void doubleClick(QPoint where) {
    click(where);
    mouse(QEvent::MouseButtonDblClick, where, Qt::LeftButton, Qt::LeftButton);
    mouse(QEvent::MouseButtonRelease, where, Qt::LeftButton, Qt::NoButton);
  }
  void drag(QPoint from, QPoint to) {
    mouse(QEvent::MouseButtonPress, from, Qt::LeftButton, Qt::LeftButton);
    for (int i = 1; i <= 4; ++i) mouse(QEvent::MouseMove, from + (to - from) * i / 4, Qt::NoButton, Qt::LeftButton);
    mouse(QEvent::MouseButtonRelease, to, Qt::LeftButton, Qt::NoButton);
  }
  void wheel(QPoint where, int ticks, Qt::KeyboardModifiers modifiers) {
    QWheelEvent event(where, canvas()->mapToGlobal(QPointF(where)), {}, {0, 120 * ticks}, Qt::NoButton, modifiers, Qt::NoScrollPhase,
                      false);
    QApplication::sendEvent(canvas(), &event);
  }
  void key(Qt::Key code, Qt::KeyboardModifiers modifiers = Qt::NoModifier) { QTest::keyClick(canvas(), code, modifiers); }

  Document document;
  TimelineWidget widget{document};
  std::unique_ptr<Dependencies> dependencies;
};

}  // namespace pw::gui
