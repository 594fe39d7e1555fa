#include "simulator/timeline/figure_style.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "schedules/error.h"

namespace pw {
namespace {

FigureStyle with(std::string_view name, std::string_view text) {
  FigureStyle style;
  figureSetting(name).set(style, text);
  return style;
}

TEST(FigureStyle, TakesLengthsInTheUnitsOfPapers) {
  EXPECT_DOUBLE_EQ(with("width", "85mm").width, 85);
  EXPECT_DOUBLE_EQ(with("width", "85").width, 85);
  EXPECT_DOUBLE_EQ(with("width", "8.5cm").width, 85);
  EXPECT_DOUBLE_EQ(with("width", "3.5in").width, 88.9);
  EXPECT_NEAR(with("width", "241.14pt").width, 84.75, 0.01) << "a column of ACM, 72.27 pt to the inch";
  EXPECT_DOUBLE_EQ(with("width", "column").width, 85);
  EXPECT_DOUBLE_EQ(with("width", "two-columns").width, 178);
}

TEST(FigureStyle, TakesRanksAndTimes) {
  EXPECT_EQ(with("ranks", "0-3, 8").ranks, (std::vector<RankRange>{{Rank(0), Rank(3)}, {Rank(8), Rank(8)}}));
  EXPECT_TRUE(includes(with("ranks", "0-3,8"), Rank(8)));
  EXPECT_FALSE(includes(with("ranks", "0-3,8"), Rank(4)));
  EXPECT_TRUE(includes({}, Rank(4)));
  EXPECT_EQ(with("time", "10ms-1.5s").times, (TimeRange{10'000'000, 1'500'000'000}));
  EXPECT_FALSE(with("time", "").times);
}

TEST(FigureStyle, RefusesWhatItCannotDrawInASentenceThatNamesIt) {
  for (const auto& [name, text] :
       std::vector<std::pair<std::string, std::string>>{{"width", "0mm"},       {"width", "-5mm"},
                                                        {"width", "nan"},       {"width", "1e9mm"},
                                                        {"width", "mm"},        {"width", ""},
                                                        {"font", ""},           {"font", "a;b}</x>"},
                                                        {"font-size", "3"},     {"font-size", "inf"},
                                                        {"row-height", "0.1"},  {"ranks", "a"},
                                                        {"ranks", "3-1"},       {"ranks", "1,,2"},
                                                        {"ranks", "-1"},        {"ranks", "1-"},
                                                        {"time", "5ms"},        {"time", "5ms-2ms"},
                                                        {"time", "a-b"},        {"labels", "some"},
                                                        {"greyscale", "maybe"}, {"title", std::string(501, 'x')}}) {
    EXPECT_THROW(with(name, text), UsageError) << name << " " << text;
  }
  EXPECT_THROW(static_cast<void>(figureSetting("colour")), UsageError);
}

TEST(FigureStyle, SettingsRestoreEveryField) {
  FigureStyle style;
  style.width = 88.9;
  style.font = "Times New Roman";
  style.fontSize = 7.5;
  style.rowHeight = 4;
  style.ranks = {{Rank(0), Rank(3)}, {Rank(8), Rank(8)}};
  style.times = TimeRange{1'500, 2'000'000};
  style.title = "a \"<&_\\%$#{}";
  style.predictedTitle = "model";
  style.measuredTitle = "machine";
  style.rankLabel = "GPU";
  style.labels = BlockLabels::Full;
  style.legend = style.messages = false;
  style.greyscale = style.memory = style.busy = style.summary = true;
  FigureStyle copy;
  for (const FigureSetting& setting : figureSettings()) {
    EXPECT_NE(setting.text(style), setting.text(FigureStyle{})) << setting.name;
    setting.set(copy, setting.text(style));
  }
  EXPECT_EQ(copy, style);
}

TEST(FigureStyle, OptionsAreWhatDiffersFromTheDefault) {
  EXPECT_TRUE(figureOptions({}).empty());
  FigureStyle style = with("width", "85");
  style.title = "-x";
  style.greyscale = true;
  style.legend = false;
  EXPECT_EQ(figureOptions(style), (std::vector<std::string>{"--width", "85mm", "--title=-x", "--greyscale", "--no-legend"}));
}

}  // namespace
}  // namespace pw
