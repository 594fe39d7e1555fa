#include "simulator/page/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "schedules/generate.h"
#include "schedules/lower.h"
#include "simulator/page/content.h"
#include "simulator/page/tracks.h"
#include "simulator/report/explain_text.h"
#include "simulator/timeline/fill.h"
#include "tests/support/random_costs.h"
#include "tests/support/reducing_step.h"

namespace pw {
namespace {

using testing::HasSubstr;
using testing::Not;

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts{""};
  for (const char c : text) {
    if (c == at)
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

std::int64_t whole(const std::string& text) { return text.empty() ? 0 : std::stoll(text, nullptr, 36); }

/// What a reader of the page makes of its data: the document's words alone, without the writer's code.
nlohmann::json dataOf(const std::string& html) {
  const std::string begin = "<script id=\"data\" type=\"application/json\">";
  const std::size_t at = html.find(begin) + begin.size();
  return nlohmann::json::parse(html.substr(at, html.find("</script>", at) - at));
}

struct Example {
  Schedule schedule = lower(generate("1f1b", {3, 3, 5}));
  std::mt19937_64 random{5};
  CostTable costs = test::randomCosts(random, schedule);
};

TEST(Page, TracksHaveEverySpanToTheNanosecond) {
  std::mt19937_64 random(1);
  Trace trace;
  trace.ranks = 2;
  Ns now = 0;
  for (int i = 0; i < 500; ++i) {
    const Ns start = now + test::draw(random, 0, 1) * test::draw<Ns>(random, 0, 1'000'000'000), end = start + test::draw<Ns>(random, 0, 40);
    const SpanKind kind = test::draw(random, 0, 1) == 0 ? SpanKind::Forward : SpanKind::BackwardWeight;
    trace.spans.push_back({Rank{1}, kind, Stage{static_cast<int>(test::draw(random, 0, 3))}, Microbatch{i}, Rank{1}, 0, start, end});
    now = end;
  }
  Page page{"t", "", {}, {{"predicted", &trace, nullptr}}, {}};
  const nlohmann::json data = dataOf(toHtml(page));
  const std::vector<std::string> spans = split(data["lanes"][0]["ranks"][1][0].get<std::string>(), ';');
  const Timeline timeline = timelineOf(trace);
  const SpanTrack& track = timeline.ranks[1].compute;
  ASSERT_EQ(spans.size(), track.size());
  std::map<std::int64_t, std::int64_t> lasted;
  std::int64_t before = 0;
  for (std::size_t i = 0; i < spans.size(); ++i) {
    std::vector<std::string> parts = split(spans[i], ',');
    parts.resize(4);
    const std::int64_t tag = whole(parts[2]), start = before + whole(parts[0]);
    if (!parts[1].empty()) lasted[tag] = whole(parts[1]);
    EXPECT_EQ(start, track.start[i]);
    EXPECT_EQ(start + lasted[tag], track.end[i]);
    EXPECT_EQ(data["tags"][static_cast<std::size_t>(tag)][0], static_cast<int>(track.tags[i].kind));
    EXPECT_EQ(data["tags"][static_cast<std::size_t>(tag)][1], track.tags[i].stage.value);
    EXPECT_EQ(whole(parts[3]), track.tags[i].microbatch.value);
    before = start + lasted[tag];
  }
}

TEST(Page, TheLongestBubblesHaveTheirReasonInFullAndAllInShort) {
  const Example e;
  const Trace trace = simulate(e.schedule, e.costs);
  const Explanation why = explain(e.schedule, e.costs);
  const nlohmann::json data = dataOf(toHtml({"t", "", {}, {{"predicted", &trace, &why}}, {}}));
  ASSERT_FALSE(why.bubbles.empty());
  for (const Bubble& bubble : why.bubbles) {
    const std::string at = std::to_string(bubble.rank.value) + ":" + page::base36(bubble.start.value);
    EXPECT_EQ(data["lanes"][0]["reasons"][at], toString(bubble));
    EXPECT_THAT(data["lanes"][0]["ranks"][bubble.rank.index()][2].get<std::string>(),
                HasSubstr("," + std::to_string(bubble.awaitedRank.value) + "," + toString(bubble.awaited)));
  }
  EXPECT_TRUE(page::longReasons(why, 10).empty());
}

TEST(Page, NamesCannotEndTheDocumentsParts) {
  const Example e;
  const Trace trace = simulate(e.schedule, e.costs);
  const std::string evil = "</script><script>alert(1)</script><b>&\xff";
  const std::string html = toHtml({evil, evil, {{evil, evil}}, {{evil, &trace, nullptr}}, {{evil, {evil}, {{evil}}}}});
  EXPECT_THAT(html, Not(HasSubstr("<script>alert")));
  EXPECT_THAT(html, Not(HasSubstr("<b>")));
  EXPECT_EQ(dataOf(html)["title"], "</script><script>alert(1)</script><b>&\xEF\xBF\xBD");
  EXPECT_THAT(html, Not(HasSubstr("http")));
}

TEST(Page, ErrorsCountReductionsFromTheLastRankThatBeginsThem) {
  const Trace predicted = test::reducingStep(10), measured = test::reducingStep(40);
  Page page{"t", "", {}, {{"predicted", &predicted, nullptr}, {"measured", &measured, nullptr}}, {}};
  addErrors(page, Plan(), {});
  const auto table = std::ranges::find(page.tables, "Error by kind", &PageTable::title);
  ASSERT_NE(table, page.tables.end());
  const auto row = std::ranges::find_if(table->rows, [](const auto& cells) { return cells.front() == "REDUCE_GRAD"; });
  ASSERT_NE(row, table->rows.end());
  EXPECT_EQ((*row)[2], (*row)[1]) << "both ranks reduce in 5 ns once both are there";
  EXPECT_THAT(page.sentence, HasSubstr("ranks of measured waited 30 ns in all"));
}

// A measured message ends when its receiver takes it: that it took longer than predicted is no error of the prediction.
TEST(Page, HasNoErrorOfMessages) {
  const auto step = [](Ns message) {
    Trace trace;
    trace.ranks = 2;
    const auto add = [&](int rank, SpanKind kind, int stage, Ns start, Ns end) {
      trace.spans.push_back({Rank(rank), kind, Stage(stage), Microbatch(0), Rank(1 - rank), 0, start, end});
    };
    add(0, SpanKind::Forward, 0, Ns(0), Ns(10));
    add(0, SpanKind::SendForward, 0, Ns(10), Ns(10) + message);
    add(1, SpanKind::Forward, 1, Ns(50), Ns(62));
    return trace;
  };
  const Trace predicted = step(Ns(5)), measured = step(Ns(40));
  Page page{"t", "", {}, {{"predicted", &predicted, nullptr}, {"measured", &measured, nullptr}}, {}};
  addErrors(page, Plan(), {});
  const auto table = std::ranges::find(page.tables, "Error by kind", &PageTable::title);
  ASSERT_NE(table, page.tables.end());
  const auto row = std::ranges::find_if(table->rows, [](const auto& cells) { return cells.front() == "SEND_F"; });
  ASSERT_NE(row, table->rows.end());
  EXPECT_EQ(*row, (std::vector<std::string>{"SEND_F", "5 ns", "40 ns", "–", "35 ns", "–"}));
}

TEST(Page, NumbersAreInBase36) {
  EXPECT_EQ(page::base36(0), "0");
  EXPECT_EQ(page::base36(35), "z");
  EXPECT_EQ(page::base36(-36), "-10");
  for (const std::int64_t value : {std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max()})
    EXPECT_EQ(std::stoll(page::base36(value), nullptr, 36), value);
}

}  // namespace
}  // namespace pw
