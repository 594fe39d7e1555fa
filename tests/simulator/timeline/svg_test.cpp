#include "simulator/timeline/svg.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "schedules/generate.h"
#include "simulator/step/cost_table.h"
#include "simulator/step/simulate.h"
#include "simulator/timeline/html.h"

namespace pw {
namespace {

std::size_t countOf(const std::string& text, const std::string& what) {
  std::size_t count = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + what.size())) ++count;
  return count;
}

Trace simulated(const std::string& name, const Shape& shape, Ns transfer = 0) {
  SyntheticCosts costs;
  costs.forward = {1'000'000};
  costs.backward = {2'000'000};
  costs.transfer = transfer;
  return simulate(generate(name, shape), syntheticTable(costs, shape.stages));
}

/// Tags open and close in order, attribute values are quoted: enough for a viewer to refuse anything worse.
bool isWellFormed(const std::string& text) {
  std::vector<std::string> open;
  for (std::size_t at = text.find('<'); at != std::string::npos; at = text.find('<', at + 1)) {
    const std::size_t end = text.find('>', at);
    if (end == std::string::npos) return false;
    const std::string tag = text.substr(at + 1, end - at - 1);
    const std::string name = tag.substr(tag.front() == '/' ? 1 : 0, tag.find_first_of(" />", 1) - (tag.front() == '/' ? 1 : 0));
    if (countOf(tag, "\"") % 2 != 0 || tag.find('<') != std::string::npos) return false;
    if (tag.front() == '/') {
      if (open.empty() || open.back() != name) return false;
      open.pop_back();
    } else if (tag.back() != '/') {
      open.push_back(name);
    }
  }
  return open.empty();
}

TEST(Svg, DrawsABlockForEachActionWithWhatItIs) {
  // 2 ranks, 3 microbatches: 12 actions. gpipe without messages' time: makespan (3 + 1)(1 + 2) = 12 ms, each rank busy for 9 of it.
  const std::string svg = toSvg(simulated("gpipe", {2, 2, 3}), {.title = "a <small> one"});
  EXPECT_TRUE(isWellFormed(svg)) << svg;
  EXPECT_EQ(countOf(svg, "<title>0F"), 3U);
  EXPECT_EQ(countOf(svg, "<title>1B"), 3U);
  EXPECT_NE(svg.find("<title>1F2 forward, 1.00 ms at 3.00 ms</title>"), std::string::npos);
  EXPECT_NE(svg.find(">rank 1</text>"), std::string::npos);
  EXPECT_EQ(countOf(svg, "75 % busy"), 2U);
  EXPECT_NE(svg.find("makespan 12.0 ms, bubble 25.0 %"), std::string::npos);
  EXPECT_NE(svg.find("a &lt;small&gt; one"), std::string::npos);
}

TEST(Svg, NamesStagesWhereARankHasSeveral) {
  EXPECT_NE(toSvg(simulated("1f1b", {2, 2, 2})).find(">F0</text>"), std::string::npos);
  EXPECT_NE(toSvg(simulated("interleaved-1f1b", {2, 4, 2})).find(">2F0</text>"), std::string::npos);
}

TEST(Svg, DrawsMessagesBelowTheirSender) {
  const std::string svg = toSvg(simulated("1f1b", {2, 2, 2}, 500'000));
  EXPECT_NE(svg.find("<title>0SEND_F1 activations sent, 500 µs"), std::string::npos) << svg;
  EXPECT_NE(svg.find("gradients sent</text>"), std::string::npos);
  EXPECT_EQ(toSvg(simulated("1f1b", {2, 2, 2})).find("k6"), std::string::npos) << "waits are bubble";
}

TEST(Svg, DrawsBothActionsOfASlotInItsTime) {
  Trace trace{1,
              {{Rank(0), SpanKind::Forward, Stage(0), Microbatch(1), Rank(0), 0, 0, 1000},
               {Rank(0), SpanKind::Backward, Stage(0), Microbatch(0), Rank(0), 0, 0, 1000}},
              {}};
  const std::string svg = toSvg(trace);
  EXPECT_EQ(countOf(svg, "height=\"12\"/><text class=\"w"), 2U) << "half a lane of 24 each";
}

TEST(Svg, MergesWhatIsTooNarrowSoThatAMillionSpansMakeAFewMegabytes) {
  // 8 ranks, 125,000 actions each, one after another: no bubble anywhere.
  Trace trace{8, {}, {}};
  for (std::int32_t k = 0; k < 125'000; ++k) {
    for (std::int32_t r = 0; r < 8; ++r)
      trace.spans.push_back({Rank(r), k % 2 == 0 ? SpanKind::Forward : SpanKind::Backward, Stage(r), Microbatch(k / 2), Rank(r), 0,
                             Ns{k} * 100, Ns{k} * 100 + 100});
  }
  const std::string svg = toSvg(trace);
  EXPECT_LT(svg.size(), 3'000'000U);
  EXPECT_TRUE(isWellFormed(svg));
  EXPECT_EQ(countOf(svg, "100 % busy"), 8U);
}

TEST(Svg, KeepsBubblesBetweenMergedSpans) {
  // 10,000 spans of 1 ns each in the first and the last tenth of the time: what lies between stays open.
  Trace trace{1, {}, {}};
  for (std::int32_t k = 0; k < 10'000; ++k)
    trace.spans.push_back({Rank(0), SpanKind::Forward, Stage(0), Microbatch(k), Rank(0), 0, Ns(k < 5'000 ? k : 45'000 + k),
                           Ns((k < 5'000 ? k : 45'000 + k) + 1)});
  const std::string svg = toSvg(trace, {.title = "", .width = 1000});
  // The lane begins at 76 and is 828 wide: merged columns lie in its first and last tenth, with half a pixel's width to spare.
  const std::size_t path = svg.find("<path");
  ASSERT_NE(path, std::string::npos);
  const std::string pieces = svg.substr(path, svg.find("/>", path) - path);
  std::size_t count = 0;
  for (std::size_t at = pieces.find('M'); at != std::string::npos; at = pieces.find('M', at + 1), ++count) {
    const double x = std::stod(pieces.substr(at + 1)), width = std::stod(pieces.substr(pieces.find('h', at) + 1));
    EXPECT_TRUE(x + width <= 76 + 82.8 + 0.5 || x >= 76 + 828 * 0.9 - 0.5) << x << " " << width;
  }
  EXPECT_GE(count, 2U);
  EXPECT_LE(count, 6U) << "columns that look alike are one piece";
}

TEST(Svg, DrawsAnEmptyTraceAndTimesOfAnySize) {
  EXPECT_TRUE(isWellFormed(toSvg(Trace{})));
  EXPECT_TRUE(isWellFormed(toSvg(Trace{3, {}, {}})));
  const Trace huge{1, {{Rank(0), SpanKind::Forward, Stage(0), Microbatch(0), Rank(0), 0, 0, Ns(4'000'000'000'000'000'000)}}, {}};
  EXPECT_TRUE(isWellFormed(toSvg(huge)));
}

TEST(HtmlTimeline, PartOfAPageHasStylesOfItsOwnForLightAndDark) {
  const Trace trace = simulated("1f1b", {2, 2, 3});
  const std::string part = toHtmlPart(trace, "a < b");
  EXPECT_EQ(countOf(part, "<svg"), 1U);
  EXPECT_EQ(countOf(part, "a &lt; b"), 2U) << "in the drawing and as its name";
  const std::string style = part.substr(part.find("<style>") + 7, part.find("</style>") - part.find("<style>") - 7);
  EXPECT_NE(style.find("prefers-color-scheme:dark"), std::string::npos);
  // Every rule but the media query is of the drawing: its selector names it.
  EXPECT_EQ(countOf(style, "{"), countOf(style, ".pipewright ") + 1);
  EXPECT_EQ(countOf(toSvg(trace), ".pipewright"), 0U) << "a drawing for papers stays light";
}

TEST(HtmlTimeline, PageIsOneFileWithTheSameDrawing) {
  const Trace trace = simulated("gpipe", {2, 2, 2});
  const std::string page = toHtml(trace, "t");
  EXPECT_TRUE(page.starts_with("<!doctype html>"));
  EXPECT_NE(page.find(toHtmlPart(trace, "t")), std::string::npos);
  EXPECT_EQ(countOf(page, "src="), 0U);
  EXPECT_EQ(countOf(page, "href="), 0U);
}

}  // namespace
}  // namespace pw
