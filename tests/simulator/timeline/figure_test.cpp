#include "simulator/timeline/figure.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "schedules/error.h"
#include "schedules/generate.h"
#include "simulator/step/cost_table.h"
#include "simulator/step/simulate.h"
#include "simulator/timeline/figure_looks.h"
#include "simulator/timeline/figure_text.h"
#include "simulator/timeline/time_ruler.h"

namespace pw {
namespace {

/// F takes 1 ms and B 2 ms.
Trace simulated(const std::string& name, const Shape& shape, Ns transfer = 0) {
  SyntheticCosts costs;
  costs.forward = {1'000'000};
  costs.backward = {2'000'000};
  costs.transfer = transfer;
  return simulate(generate(name, shape), syntheticTable(costs, shape.stages));
}

Figure figureOf(const Trace& trace, const FigureStyle& style = {}) { return layOut({{&trace, ""}}, style); }

FigureStyle with(std::string_view name, std::string_view text) {
  FigureStyle style;
  figureSetting(name).set(style, text);
  return style;
}

std::vector<std::string> textsOf(const Figure& figure, TextRole role) {
  std::vector<std::string> texts;
  for (const FigureText& text : figure.texts) {
    if (text.role == role) texts.push_back(text.text);
  }
  return texts;
}

TEST(Figure, DrawsTimesToOneScale) {
  // gpipe with 2 ranks and 3 microbatches: makespan (3 + 1)(1 + 2) = 12 ms. A forward is a twelfth of the axis, a backward a sixth.
  const Trace trace = simulated("gpipe", {2, 2, 3});
  const Figure figure = figureOf(trace);
  ASSERT_EQ(figure.blocks.size(), 12U);
  ASSERT_EQ(figure.lanes.size(), 2U);
  const double axis = figure.lanes.front().width;
  EXPECT_DOUBLE_EQ(figure.width, 178);
  for (const FigureBlock& block : figure.blocks) {
    const double whole = axis * (block.kind == SpanKind::Forward ? 1 : 2) / 12;
    EXPECT_GT(block.box.width, 0.85 * whole);
    EXPECT_LE(block.box.width, whole) << "less a hairline between neighbours";
    EXPECT_GE(whole - block.box.width, 0.75 * 25.4 / 96) << "that is most of a screen's pixel";
    const FigureBox& lane = figure.lanes[block.span->rank.index()];
    EXPECT_NEAR(block.box.x, lane.x + axis * static_cast<double>(block.span->start) / 12e6, 1e-9);
    EXPECT_DOUBLE_EQ(block.box.y, lane.y);
    EXPECT_DOUBLE_EQ(block.box.height, lane.height);
  }
  // Rank by rank, each in the order of starts.
  EXPECT_TRUE(std::ranges::is_sorted(figure.blocks, {}, [](const FigureBlock& b) { return std::pair(b.span->rank, b.span->start); }));
  EXPECT_EQ(textsOf(figure, TextRole::Name), (std::vector<std::string>{"rank 0", "rank 1"}));
}

TEST(Figure, ATwiceAsWideOneHasALongerAxisAndTheSameTextAndRows) {
  const Trace trace = simulated("1f1b", {4, 4, 8});
  const Figure narrow = figureOf(trace, with("width", "85")), wide = figureOf(trace, with("width", "170"));
  EXPECT_NEAR(wide.lanes.front().width - narrow.lanes.front().width, 85, 1e-9);
  EXPECT_DOUBLE_EQ(wide.lanes.front().height, narrow.lanes.front().height);
  EXPECT_DOUBLE_EQ(textSize(wide, TextRole::Name), 8 * 25.4 / 72);
  EXPECT_DOUBLE_EQ(figureOf(trace, with("row-height", "7mm")).lanes.front().height, 7);
}

TEST(Figure, EverythingStaysOnThePage) {
  for (const auto& [name, stages] : {std::pair("1f1b", 4), std::pair("interleaved-1f1b", 8), std::pair("zbv", 8)}) {
    const Trace trace = simulated(name, {4, stages, 8}, 200'000);
    for (const double width : {60.0, 85.0, 178.0}) {
      FigureStyle style;
      style.width = width;
      style.title = "A title that is so long that it needs more than one line in a column of a paper";
      style.busy = style.memory = style.summary = true;
      const Figure figure = layOut({{&trace, "Predicted"}, {&trace, "Measured"}}, style);
      EXPECT_DOUBLE_EQ(figure.width, width);
      for (const FigureText& text : figure.texts) {
        const double size = textSize(figure, text.role), length = textWidth(text.text, size);
        const double left = text.align == TextAlign::Left    ? text.at.x
                            : text.align == TextAlign::Right ? text.at.x - length
                                                             : text.at.x - length / 2;
        EXPECT_GE(left, 0) << text.text;
        EXPECT_LE(left + length, width + 0.3) << text.text << " at " << width;
        EXPECT_GE(text.at.y - 0.75 * size, 0) << text.text;
        EXPECT_LE(text.at.y, figure.height) << text.text;
      }
      for (const FigureBlock& block : figure.blocks) {
        EXPECT_LE(block.box.x + block.box.width, width);
        EXPECT_LE(block.label.empty() ? 0 : textWidth(block.label, labelSize(figure)), block.box.width + 0.13);
      }
    }
  }
}

TEST(Figure, DrawsTheChosenRanksAndTimes) {
  const Trace trace = simulated("gpipe", {4, 4, 2});
  FigureStyle style;
  figureSetting("ranks").set(style, "0,2-3");
  const Figure ranks = figureOf(trace, style);
  EXPECT_EQ(textsOf(ranks, TextRole::Name), (std::vector<std::string>{"rank 0", "rank 2", "rank 3"}));
  EXPECT_EQ(ranks.blocks.size(), 12U) << "4 actions of each of 3 ranks";
  // (2 + 3)(1 + 2) = 15 ms. Until 3 ms there are on rank 0 F0 and F1, on rank 1 the same, on rank 2 F0.
  figureSetting("ranks").set(style, "");
  figureSetting("time").set(style, "0ms-3ms");
  const Figure times = figureOf(trace, style);
  EXPECT_EQ(times.blocks.size(), 5U);
  EXPECT_NEAR(times.blocks.front().box.width, times.lanes.front().width / 3, 0.2) << "1 of 3 ms";
  // What reaches into the range is cut at its beginning.
  figureSetting("time").set(style, "500us-2500us");
  EXPECT_DOUBLE_EQ(figureOf(trace, style).blocks.front().box.x, figureOf(trace, style).lanes.front().x);
  EXPECT_NEAR(figureOf(trace, style).blocks.front().box.width, times.lanes.front().width / 4, 0.2) << "0.5 of 2 ms";
}

TEST(Figure, TwoStepsShareOneTimeAxis) {
  const Trace predicted = simulated("gpipe", {2, 2, 3});
  Trace measured = predicted;
  for (Span& span : measured.spans) span.start *= 2, span.end *= 2;
  FigureStyle style;
  style.summary = true;
  const Figure figure = layOut({{&predicted, "Predicted"}, {&measured, "Measured"}}, style);
  ASSERT_EQ(figure.lanes.size(), 4U);
  ASSERT_EQ(figure.blocks.size(), 24U);
  EXPECT_EQ(textsOf(figure, TextRole::Heading), (std::vector<std::string>{"Predicted", "Measured"}));
  for (std::size_t i = 0; i < 12; ++i) {
    const FigureBlock &above = figure.blocks[i], &below = figure.blocks[i + 12];
    EXPECT_NEAR(2 * (above.box.x - figure.lanes[0].x), below.box.x - figure.lanes[0].x, 1e-9);
    EXPECT_LT(above.box.y, below.box.y);
  }
  const auto notes = textsOf(figure, TextRole::Note);
  EXPECT_TRUE(std::ranges::find(notes, "Predicted: makespan 12.0 ms, bubble 25.0 %") != notes.end());
  EXPECT_TRUE(std::ranges::find(notes, "Measured: makespan 24.0 ms, bubble 25.0 %") != notes.end());
}

TEST(Figure, LabelsSayWhatTheStyleAsksFor) {
  const Trace trace = simulated("interleaved-1f1b", {2, 4, 2});
  const auto labels = [&](BlockLabels wanted) {
    std::set<std::string> found;
    FigureStyle style;
    style.labels = wanted;
    for (const FigureBlock& block : figureOf(trace, style).blocks) found.insert(block.label);
    return found;
  };
  EXPECT_EQ(labels(BlockLabels::None), (std::set<std::string>{""}));
  EXPECT_EQ(labels(BlockLabels::Number), (std::set<std::string>{"0", "1"}));
  EXPECT_TRUE(labels(BlockLabels::Full).contains("2F1"));
  EXPECT_EQ(labels(BlockLabels::Full).size(), 16U) << "4 stages, 2 microbatches, F and B";
}

TEST(Figure, LabelsAreSmallerOrShorterBeforeTheyAreLeftOut) {
  // 1f1b with 4 ranks and 8 microbatches: (8 + 3)(1 + 2) = 33 ms. On about 75 mm a forward is 2.3 mm wide, `F0` at 7.3 pt 3.3 mm.
  const Trace trace = simulated("1f1b", {4, 4, 8});
  FigureStyle style = with("labels", "full");
  style.width = 85;
  const Figure narrow = figureOf(trace, style);
  EXPECT_TRUE(std::ranges::all_of(narrow.blocks, [](const FigureBlock& b) { return b.label.size() == 1; }));
  style.width = 178;
  const Figure wide = figureOf(trace, style);
  EXPECT_TRUE(std::ranges::all_of(wide.blocks, [](const FigureBlock& b) { return b.label.size() == 2; }));
  EXPECT_GE(wide.labelScale, 0.7);
}

TEST(Figure, HasNoColourOfMessagesInItsLegendWhereNoneTakesTime) {
  const auto kinds = [](Ns transfer) {
    std::set<SpanKind> found;
    for (const FigureSwatch& swatch : figureOf(simulated("1f1b", {2, 2, 2}, transfer)).swatches) {
      if (swatch.kind) found.insert(*swatch.kind);
    }
    return found;
  };
  EXPECT_EQ(kinds(0), (std::set{SpanKind::Forward, SpanKind::Backward}));
  EXPECT_EQ(kinds(500'000), (std::set{SpanKind::Forward, SpanKind::Backward, SpanKind::SendForward, SpanKind::SendBackward}));
  EXPECT_LT(figureOf(simulated("1f1b", {2, 2, 2})).height, figureOf(simulated("1f1b", {2, 2, 2}, 500'000)).height) << "nor room for them";
}

TEST(Figure, ShowsMessagesMemoryAndLegendOnlyWhereWanted) {
  const Trace trace = simulated("1f1b", {2, 2, 2}, 500'000);
  FigureStyle style;
  const auto messages = [&] {
    const Figure figure = figureOf(trace, style);
    return std::ranges::count_if(figure.blocks, [](const FigureBlock& b) { return b.kind == SpanKind::SendForward; });
  };
  EXPECT_EQ(messages(), 2);
  style.messages = false;
  EXPECT_EQ(messages(), 0);
  EXPECT_TRUE(figureOf(trace, style).memory.empty());
  EXPECT_EQ(figureOf(trace, style).swatches.size(), 3U) << "forward, backward, bubble";
  style.legend = false;
  EXPECT_TRUE(figureOf(trace, style).swatches.empty());
  // Rank 0 holds 100 of at most 200 bytes for the first half: its curve is half as high as that of rank 1.
  Trace held{2, {{Rank(0), SpanKind::Forward, Stage(0), Microbatch(0), Rank(0), 0, 0, 100}}, {}};
  held.memory = {{Rank(0), 0, 100}, {Rank(0), 50, 0}, {Rank(1), 0, 200}};
  style.memory = true;
  const Figure figure = figureOf(held, style);
  ASSERT_EQ(figure.memory.size(), 2U);
  const auto height = [&](std::size_t r) {
    const auto [low, high] = std::ranges::minmax(figure.memory[r].outline, {}, &FigurePoint::y);
    return high.y - low.y;
  };
  EXPECT_NEAR(height(0), height(1) / 2, 1e-9);
  EXPECT_GT(height(1), 1);
}

TEST(Figure, BoundsWhatManySpansAreDrawnWith) {
  // 64 ranks and 512 microbatches: 65,536 actions; the messages take no time here, so there is nothing of them to draw or merge.
  const Trace trace = simulated("1f1b", {64, 64, 512});
  const Figure figure = figureOf(trace);
  EXPECT_LE(figure.blocks.size(), 12'000U);
  EXPECT_EQ(figure.blocks.size() + figure.mergedSpans, 65'536U);
  std::size_t boxes = 0;
  for (const FigureMerged& merged : figure.merged) boxes += merged.boxes.size();
  EXPECT_LE(boxes, 130'000U);
  EXPECT_LE(figure.height, 260);
  EXPECT_THROW(static_cast<void>(figureOf(Trace{1025, {}, {}})), UsageError);
}

TEST(Figure, RefusesWhatCannotBeDrawn) {
  const Trace trace = simulated("gpipe", {2, 2, 2});
  FigureStyle style;
  figureSetting("ranks").set(style, "1-2");
  EXPECT_THROW(static_cast<void>(figureOf(trace, style)), UsageError);
  style = {};
  figureSetting("time").set(style, "9ms-10ms");
  EXPECT_THROW(static_cast<void>(figureOf(trace, style)), UsageError) << "the step ends at 9 ms";
  style = with("font-size", "20");
  style.width = 20;
  EXPECT_THROW(static_cast<void>(figureOf(trace, style)), UsageError);
  EXPECT_GT(figureOf(Trace{}).height, 0);
  EXPECT_EQ(figureOf(Trace{3, {}, {}}).lanes.size(), 3U);
}

TEST(FigureLooks, GreysAreGreyAndActionsDiffer) {
  std::set<std::pair<std::uint32_t, Hatch>> looks;
  for (const SpanKind kind : valuesOf<SpanKind>()) {
    const FigureLook look = lookOf(kind, true);
    for (const std::uint32_t rgb : {look.fill, look.text}) {
      EXPECT_EQ(rgb >> 16U, rgb & 0xffU) << nameOf(kind);
      EXPECT_EQ((rgb >> 8U) & 0xffU, rgb & 0xffU) << nameOf(kind);
    }
    looks.insert({look.fill, look.hatch});
  }
  EXPECT_EQ(looks.size(), valuesOf<SpanKind>().size() - 1) << "the two waits are one";
}

TEST(FigureLooks, HatchingStaysInItsBoxAndContinuesInTheNext) {
  for (const Hatch hatch : {Hatch::Rising, Hatch::Falling, Hatch::Level, Hatch::Upright, Hatch::Cross}) {
    const FigureBox box{3.3, 1.7, 10, 4};
    const auto lines = hatchLines(box, hatch);
    EXPECT_GE(lines.size(), 4U);
    for (const FigureSegment& line : lines) {
      for (const FigurePoint& p : {line.from, line.to}) {
        EXPECT_GE(p.x, box.x - 1e-9);
        EXPECT_LE(p.x, box.x + box.width + 1e-9);
        EXPECT_GE(p.y, box.y - 1e-9);
        EXPECT_LE(p.y, box.y + box.height + 1e-9);
      }
    }
  }
  EXPECT_TRUE(hatchLines({0, 0, 10, 10}, Hatch::None).empty());
  // The lengths of two halves are that of the whole.
  const auto length = [](const FigureBox& box) {
    double sum = 0;
    for (const FigureSegment& l : hatchLines(box, Hatch::Rising)) sum += std::hypot(l.to.x - l.from.x, l.to.y - l.from.y);
    return sum;
  };
  EXPECT_NEAR(length({1, 1, 8, 5}), length({1, 1, 3, 5}) + length({4, 1, 5, 5}), 1e-9);
}

TEST(FigureText, BreaksBetweenWordsAndEndsInDots) {
  EXPECT_TRUE(wrapped("", 3, 50, 3).empty());
  EXPECT_EQ(wrapped("one", 3, 50, 3), std::vector<std::string>{"one"});
  const auto lines = wrapped("the quick brown fox jumps over the lazy dog", 3, 20, 2);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_TRUE(lines[1].ends_with("…"));
  for (const std::string& line : lines) EXPECT_LE(textWidth(line, 3), 20);
  // Without spaces, whole characters.
  for (const std::string& line : wrapped("ééééééééééééééééééééééé", 3, 10, 9)) EXPECT_EQ(line.size() % 2, 0U);
}

TEST(TimeRuler, HasRoundTimesThatFit) {
  const auto width = [](std::string_view text) { return 2.0 * static_cast<double>(text.size()); };
  const TimeRuler ruler = rulerOf({0, 12'000'000}, width, 100);
  // "12 ms" is 10 wide; 16 between two of them leave room for 6 steps: of 2 ms.
  ASSERT_EQ(ruler.ticks.size(), 7U);
  EXPECT_EQ(ruler.ticks[0].second, "0");
  EXPECT_EQ(ruler.ticks[3], (std::pair<Ns, std::string>{6'000'000, "6 ms"}));
  const TimeRuler part = rulerOf({1'300'000, 1'900'000}, width, 100);
  ASSERT_FALSE(part.ticks.empty());
  EXPECT_GE(part.ticks.front().first, 1'300'000);
  EXPECT_LE(part.ticks.back().first, 1'900'000);
  EXPECT_FALSE(rulerOf({0, Ns(9'000'000'000'000'000'000)}, width, 100).ticks.empty());
}

}  // namespace
}  // namespace pw
