#include "simulator/layout/layout.h"

#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "schedules/error.h"
#include "simulator/layout/rules.h"
#include "tests/support/folder.h"

namespace pw {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> stagesOf(std::string_view text) {
  std::vector<std::string> stages;
  for (const std::vector<LayoutLayer>& stage : parseLayout(text).stages) {
    stages.emplace_back();
    for (const LayoutLayer layer : stage) stages.back() += letterOf(layer);
  }
  return stages;
}

std::string refusalOf(std::string_view text) {
  try {
    (void)parseLayout(text);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

const json& data() {
  static const json document = json::parse(test::contentOf(PW_SOURCE_DIR "/tests/data/megatron/layouts.json"));
  return document;
}

// The lists that Megatron-LM's tests write beside their strings.
TEST(Layout, ReadsTheStringsOfMegatronsTestsAsTheirLists) {
  EXPECT_THAT(stagesOf("Et|t*4|t|tL"), ElementsAre("Et", "tttt", "t", "tL"));
  EXPECT_THAT(stagesOf("E|t*6|t|L"), ElementsAre("E", "tttttt", "t", "L"));
  EXPECT_THAT(stagesOf("E|t|t*2|t||(t|)*2,t*2,L"), ElementsAre("E", "t", "tt", "t", "", "t", "t", "ttL"));
  std::vector<std::string> deepSeek(32, "tt");
  deepSeek[0] = "Ettt", deepSeek[30] = "m", deepSeek[31] = "L";
  EXPECT_EQ(stagesOf("Et*3|(tt|)*29,m|L"), deepSeek);
  deepSeek[0] = "Ett", deepSeek[30] = "t", deepSeek[31] = "mL";
  EXPECT_EQ(stagesOf("Et*2|(tt|)*29,t|mL"), deepSeek);
}

TEST(Layout, ReadsEveryStringOfTheCorpusAsMegatronDoes) {
  ASSERT_GE(data()["corpus"].size(), 35U);
  for (const json& row : data()["corpus"]) {
    const auto text = row["layout"].get<std::string>();
    EXPECT_EQ(stagesOf(text), row["stages"].get<std::vector<std::string>>()) << text;
  }
}

TEST(Layout, ReadsAndRefusesRandomStringsAsMegatronDoes) {
  ASSERT_EQ(data()["random"].size(), 400U);
  for (const json& row : data()["random"]) {
    const auto text = row["layout"].get<std::string>();
    if (row["stages"].is_null())
      EXPECT_THAT(refusalOf(text), HasSubstr("layout, character ")) << text;
    else
      EXPECT_EQ(stagesOf(text), row["stages"].get<std::vector<std::string>>()) << text;
  }
}

TEST(Layout, WritesAStringThatReadsAsTheSame) {
  for (const char* part : {"corpus", "random"}) {
    for (const json& row : data()[part]) {
      if (row["stages"].is_null()) continue;
      const Layout layout = parseLayout(row["layout"].get<std::string>());
      EXPECT_EQ(parseLayout(toString(layout)), layout) << toString(layout);
    }
  }
  std::mt19937 random(7);  // few kinds of stages, so that many are equal to the next
  for (int i = 0; i < 2000; ++i) {
    Layout layout;
    layout.stages.resize(1 + random() % 12);
    for (auto& stage : layout.stages) stage.assign(random() % 3, static_cast<LayoutLayer>(random() % 2));
    EXPECT_EQ(parseLayout(toString(layout)), layout) << toString(layout);
  }
}

TEST(Layout, WritesShortStrings) {
  EXPECT_EQ(toString(parseLayout("Et*3|(tt|)*29m|L")), "Et*3|(t*2|)*29m|L");
  EXPECT_EQ(toString(parseLayout("E||t|L")), "E||t|L");
  EXPECT_EQ(toString(parseLayout("E||||||L")), "E||*5L");
  EXPECT_EQ(toString(parseLayout("Et|t|t|t|t|tL")), "Et|(t|)*4tL");
}

TEST(Layout, NamesThePlaceOfWhatItRefuses) {
  EXPECT_THAT(refusalOf("Et|x|L"), HasSubstr("layout, character 4 of \"Et|x|L\": x is not a layer"));
  EXPECT_THAT(refusalOf("Et|T|L"), HasSubstr("character 4 of \"Et|T|L\": T is not a layer; write t"));
  EXPECT_THAT(refusalOf("Et|(tt|)L"), HasSubstr("character 4 of \"Et|(tt|)L\": this ( belongs to no repetition"));
  EXPECT_THAT(refusalOf("E((t|)*2t|)*3L"), HasSubstr("character 3 "));
  EXPECT_THAT(refusalOf("E,t|,t**3"), HasSubstr("character 7 "));
  EXPECT_THAT(refusalOf("Et 3|L"), HasSubstr("character 3 of \"Et 3|L\": a layout has no blanks"));
  EXPECT_THAT(refusalOf("Et3|L"), HasSubstr("the number 3 repeats nothing"));
  EXPECT_THAT(refusalOf("Et*|L"), HasSubstr("this * repeats nothing"));
  EXPECT_THAT(refusalOf("Et|(tt|)*2x|L"), HasSubstr("character 11 "));
}

TEST(Layout, KnowsWhereStagesAre) {
  EXPECT_THAT(stagePlaces("Et|t,|L"), ElementsAre(1, 4, 7));
  EXPECT_THAT(stagePlaces("E|(tt|)*2m|L"), ElementsAre(1, 4, 4, 10, 12));
  EXPECT_THAT(stagePlaces("E|"), ElementsAre(1, 2));
  EXPECT_THAT(stagePlaces(""), ElementsAre(1));
}

TEST(Layout, RefusesWhatWouldBecomeTooLong) {
  EXPECT_THAT(refusalOf("Et*999999999999999999999999|L"), HasSubstr("longer than 1000000 characters"));
  EXPECT_THAT(refusalOf("E(t*1000|)*1000t*99999L"), HasSubstr("longer than 1000000 characters"));
  EXPECT_THAT(refusalOf(std::string(kLongestLayout - 10, 't') + "t*999999"), HasSubstr("longer than 1000000 characters"));
  EXPECT_THAT(refusalOf(std::string(kLongestLayout + 1, 't')), HasSubstr("longer than 1000000 characters"));
  EXPECT_THAT(refusalOf(std::string(100'000, '(')), HasSubstr("character 1 "));  // linear
}

// `problem` is the first assertion of Megatron's validate_layer_layout, for the same layout and ranks.
TEST(LayoutRules, AreMegatronsForTheCorpus) {
  int refused = 0;
  for (const json& row : data()["corpus"]) {
    const auto text = row["layout"].get<std::string>();
    const std::vector<LayoutProblem> problems = problemsOf(parseLayout(text), {row["ranks"].get<int>()});
    EXPECT_EQ(problems.empty(), row["problem"].get<std::string>().empty()) << text << ": " << row["problem"];
    refused += static_cast<int>(!problems.empty());
  }
  EXPECT_EQ(refused, 1);  // the example in Megatron's own help has MTP layers in two stages
}

std::string first(const std::string& text, const LayoutSetting& setting) {
  const std::vector<LayoutProblem> problems = problemsOf(parseLayout(text), setting);
  return problems.empty() ? "" : problems.front().message;
}

TEST(LayoutRules, NameWhatIsWrong) {
  EXPECT_EQ(first("Et|t|t|tL", {.ranks = 2}), "");
  EXPECT_THAT(first("Et|t|tL", {.ranks = 2}), HasSubstr("3 stages cannot be shared out to 2 ranks"));
  EXPECT_THAT(first("Et|tL", {.ranks = 1}), HasSubstr("several stages on a rank need two ranks"));
  EXPECT_THAT(first("t|tL", {.ranks = 2}), HasSubstr("the first layer is t, and must be E"));
  EXPECT_THAT(first("Et|t", {.ranks = 2}), HasSubstr("the last layer is t, and must be L"));
  EXPECT_THAT(first("Et|EtL", {.ranks = 2}), HasSubstr("E stands 2 times"));
  EXPECT_THAT(first("|", {.ranks = 2}), HasSubstr("no layers"));
  EXPECT_THAT(first("Et|tL", {.ranks = 2, .layers = 3}), HasSubstr("the layout has 2 t, and --num-layers is 3"));
  EXPECT_THAT(first("Et|tmL", {.ranks = 2, .mtp = 2}), HasSubstr("the layout has 1 m, and --mtp-num-layers is 2"));
  EXPECT_THAT(first("Em|tL", {.ranks = 2}), HasSubstr("a t comes after an m"));
  EXPECT_THAT(first("Et|m|mL|", {.ranks = 2}), HasSubstr("MTP layers are in stages 1, 2"));
  EXPECT_THAT(first("Et|tm||L", {.ranks = 2}), HasSubstr("stage 1 (rank 1, chunk 0) has MTP layers but is not the last stage of its rank"));
}

TEST(LayoutRules, TellWhatIsAllowedButSurprising) {
  EXPECT_TRUE(notesOf(parseLayout("Et|t|t|tmL"), 2).empty());
  EXPECT_THAT(notesOf(parseLayout("E||t|L"), 2), ElementsAre(HasSubstr("stage 1 is empty")));
  EXPECT_THAT(notesOf(parseLayout("|Et|t|L"), 2), ElementsAre(HasSubstr("stage 0 is empty"), HasSubstr("E is in stage 1")));
  EXPECT_THAT(notesOf(parseLayout("Et|t|m|L"), 2), ElementsAre(HasSubstr("stage 2 (rank 0, chunk 1) has the MTP layers")));
}

TEST(LayoutRules, RefuseTheMicrobatchesThatMegatronsInterleavedScheduleRefuses) {
  EXPECT_FALSE(refusalOfMicrobatches(4, 1, 3));
  EXPECT_FALSE(refusalOfMicrobatches(4, 2, 8));
  EXPECT_TRUE(refusalOfMicrobatches(4, 2, 3));      // fewer than ranks
  EXPECT_TRUE(refusalOfMicrobatches(4, 2, 10));     // 2 remain
  EXPECT_FALSE(refusalOfMicrobatches(4, 2, 9, 5));  // 4 remain, as many as ranks
  EXPECT_TRUE(refusalOfMicrobatches(4, 2, 8, 3));
}

}  // namespace
}  // namespace pw
