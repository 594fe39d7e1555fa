#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "schedules/generate.h"
#include "simulator/step/cost_table.h"
#include "simulator/step/simulate.h"
#include "simulator/timeline/text.h"
#include "simulator/trace/trace.h"
#include "tests/support/random_costs.h"

namespace pw {
namespace {

constexpr Ns kMs = 1'000'000;

Trace unitTrace(const char* name, int ranks, int microbatches, Ns unit = kMs) {
  SyntheticCosts costs;
  costs.forward = {unit};
  costs.backward = {2 * unit};
  return simulate(generate(name, {ranks, ranks, microbatches}), syntheticTable(costs, ranks));
}

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> result;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) result.push_back(line);
  return result;
}

/// Columns of UTF-8 text without escape codes: bytes that do not continue a character.
int width(const std::string& text) {
  return static_cast<int>(std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

/// What stands between the bars of a rank's line.
std::string laneOf(const std::string& text, std::size_t rank) {
  const std::string line = lines(text).at(rank + 1);
  const std::string bar = "│";
  const std::size_t begin = line.find(bar) + bar.size();
  return line.substr(begin, line.find(bar, begin) - begin);
}

std::string golden(const std::string& file) {
  std::ifstream in(std::string(PW_SOURCE_DIR) + "/tests/golden/" + file, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

Span span(SpanKind kind, int microbatch, Ns start, Ns end) {
  return {Rank(0), kind, Stage(0), Microbatch(microbatch), Rank(0), 0, start, end};
}

std::string draw(std::vector<Span> spans, Ns length, int columns) {
  Trace trace;
  trace.ranks = 1;
  trace.spans = std::move(spans);
  const int frame = width("rank 0 ││ 100 % busy");
  return laneOf(toText(trace, {columns + frame, false, length}), 0);
}

TEST(TextTimeline, Draws1f1bAsInTheGoldenFile) { EXPECT_EQ(toText(unitTrace("1f1b", 4, 8), {}), golden("timeline_1f1b.txt")); }

TEST(TextTimeline, DrawsGpipeAsInTheGoldenFile) { EXPECT_EQ(toText(unitTrace("gpipe", 4, 8), {}), golden("timeline_gpipe.txt")); }

/// Families on two ranks with four microbatches, F = I = W = 1, B = 2: a changed order or drawing shows in the diff. A new family need not
/// be among them.
TEST(TextTimeline, DrawsFamiliesAsInTheGoldenFile) {
  const std::string drawn = golden("timelines.txt");
  std::string text;
  for (const Generator& generator : generators()) {
    if (("\n" + drawn).find("\n" + std::string(generator.name) + "\n") == std::string::npos) continue;
    const Shape shape{2, 2 * generator.chunks, 4};
    SyntheticCosts costs;
    costs.forward = costs.backwardInput = costs.backwardWeight = {kMs};
    costs.backward = {2 * kMs};
    text += std::string(generator.name) + "\n" +
            toText(simulate(generate(generator.name, shape), syntheticTable(costs, shape.stages)), {130, false, 0}) + "\n";
  }
  EXPECT_EQ(text, drawn);
}

TEST(TextTimeline, ASlotTooNarrowForItsNumbersShowsItsLetters) {
  const auto slot = [&](Ns length, int columns) {
    Trace trace;
    trace.ranks = 1;
    trace.spans = {span(SpanKind::Forward, 3, 0, length), span(SpanKind::Backward, 1, 0, length)};
    return laneOf(toText(trace, {columns + static_cast<int>(std::string("rank 0 || 100 % busy").size()), false, 20}), 0);
  };
  EXPECT_EQ(slot(14, 20), "F3&B1▚▚▚▚▚▚▚▚▚······");
  EXPECT_EQ(slot(4, 20), "F&B▚················");
  EXPECT_EQ(slot(2, 20), "F&··················");
}

TEST(TextTimeline, AUnitIsAWholeNumberOfColumns) {
  // 33 units and 81 free columns: two columns a unit.
  EXPECT_EQ(width(laneOf(toText(unitTrace("1f1b", 4, 8), {}), 0)), 66);
  EXPECT_EQ(laneOf(toText(unitTrace("1f1b", 1, 2, 7), {100, false, 0}), 0).substr(0, 2), "F0");
}

TEST(TextTimeline, AColumnShowsWhatFillsMostOfIt) {
  // Ten columns of 10: F fills 6 of the first; bubble most of the second; B just over half of the third, and the next two.
  EXPECT_EQ(draw({span(SpanKind::Forward, 0, 0, 6), span(SpanKind::Backward, 0, 24, 53)}, 100, 10), "F·B0▓·····");
  // Ties: a span before bubble, the earlier span before the later.
  EXPECT_EQ(draw({span(SpanKind::Forward, 0, 0, 5), span(SpanKind::Forward, 1, 10, 15), span(SpanKind::Backward, 0, 15, 20)}, 100, 10),
            "FF········");
  // Three short spans fill the first column together; the longest stands for it.
  EXPECT_EQ(draw({span(SpanKind::Forward, 0, 0, 2), span(SpanKind::Backward, 0, 2, 6), span(SpanKind::Forward, 1, 6, 9)}, 100, 10),
            "B·········");
}

TEST(TextTimeline, WaitsAndMessagesAreBubble) {
  EXPECT_EQ(
      draw({span(SpanKind::WaitForward, 0, 0, 50), span(SpanKind::SendForward, 0, 0, 100), span(SpanKind::Forward, 0, 50, 60)}, 100, 10),
      "·····F····");
}

TEST(TextTimeline, BlocksBeginWithLetterAndMicrobatchWhereThereIsRoom) {
  EXPECT_EQ(
      draw({span(SpanKind::Forward, 12, 0, 20), span(SpanKind::BackwardInput, 12, 20, 60), span(SpanKind::BackwardWeight, 12, 60, 100)},
           100, 10),
      "F░I12▓W12▒");
  EXPECT_EQ(draw({span(SpanKind::ReduceGrad, -1, 0, 30), span(SpanKind::Optimizer, -1, 30, 100)}, 100, 10), "RRROOOOOOO");
}

TEST(TextTimeline, RanksWithSeveralStagesNameTheStage) {
  SyntheticCosts costs;
  costs.forward = {1};
  costs.backward = {1};
  const Trace trace = simulate(test::loopedGpipe(1, 2, 1), syntheticTable(costs, 2));
  EXPECT_EQ(laneOf(toText(trace, {32, false, 0}), 0),
            "0F0"
            "1F0"
            "1B0"
            "0B0");
}

TEST(TextTimeline, TracesWithTheSameSpanLineUp) {
  const Trace shorter = unitTrace("1f1b", 2, 4);
  const Trace longer = unitTrace("1f1b", 2, 9);
  const TextOptions options{90, false, 40 * kMs};
  EXPECT_EQ(lines(toText(shorter, options)).front(), lines(toText(longer, options)).front());
  EXPECT_EQ(width(laneOf(toText(shorter, options), 1)), width(laneOf(toText(longer, options), 1)));
  const Trace cut = unitTrace("1f1b", 2, 40);  // longer than the scale: drawn as far as it goes
  EXPECT_EQ(width(laneOf(toText(cut, options), 1)), width(laneOf(toText(longer, options), 1)));
}

TEST(TextTimeline, LinesOfADrawingAreEquallyLongAndNoLongerThanColumns) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const Schedule schedule = test::randomSchedule(random);
    const int columns = static_cast<int>(test::draw(random, 40, 200));
    const Trace trace = simulate(schedule, test::randomCosts(random, schedule));
    const std::vector<std::string> text =
        lines(toText(trace, {columns, false, test::oneIn(random, 2) ? 0 : test::draw<Ns>(random, 1, 10000)}));
    ASSERT_EQ(text.size(), schedule.rows.size() + 2);
    const std::string suffix = " 100 % busy";
    for (std::size_t r = 0; r < schedule.rows.size(); ++r) {
      EXPECT_LE(width(text[r + 1]), columns);
      EXPECT_EQ(width(text[r + 1]), width(text[0]) + width(suffix));
    }
  }
}

TEST(TextTimeline, ColourWrapsBlocksAndChangesNothingElse) {
  const Trace trace = unitTrace("1f1b", 2, 3);
  std::string coloured = toText(trace, {80, true, 0});
  EXPECT_NE(coloured.find("\x1b["), std::string::npos);
  for (std::size_t at = coloured.find('\x1b'); at != std::string::npos; at = coloured.find('\x1b')) {
    coloured.erase(at, coloured.find('m', at) - at + 1);
  }
  EXPECT_EQ(coloured, toText(trace, {80, false, 0}));
}

TEST(TextTimeline, TheScaleTakesFittingUnits) {
  EXPECT_EQ(lines(toText(unitTrace("gpipe", 1, 4, 1), {}))[0].substr(0, 6), "    ns");
  EXPECT_EQ(lines(toText(unitTrace("gpipe", 1, 4, 50'000), {}))[0].substr(0, 7), "    µs");
  EXPECT_EQ(lines(toText(unitTrace("gpipe", 1, 4, 50 * kMs), {}))[0].substr(0, 6), "    ms");
  EXPECT_EQ(lines(toText(unitTrace("gpipe", 1, 4, 5000 * kMs), {}))[0].substr(0, 6), "     s");
}

TEST(TextTimeline, SpansBeforeTheOriginAreNoPartOfADrawing) {
  Trace trace;
  Span& span = trace.spans.emplace_back();
  span.rank = Rank(0);
  span.start = -5;
  EXPECT_FALSE(toText(trace, {}).empty());
}

TEST(TextTimeline, TimesOfYearsAreDrawnAsThoseOfSeconds) {
  const auto drawn = [](Ns unit) {
    SyntheticCosts costs;
    costs.forward = costs.backwardInput = {unit};
    costs.backwardWeight = {0};
    std::string text = toText(simulate(generate("gpipe", {2, 2, 12}), syntheticTable(costs, 2)), {});
    const std::size_t first = text.find("rank");  // without the ruler, and the makespan below
    return text.substr(first, text.find("makespan") - first);
  };
  const Ns years(100'000'000'000'000'000);
  EXPECT_EQ(drawn(years), drawn(Ns(1'000'000'000)));
}

TEST(TextTimeline, AnEmptyTraceSaysSo) { EXPECT_EQ(toText(Trace{}, {}), "no actions\n"); }

}  // namespace
}  // namespace pw
