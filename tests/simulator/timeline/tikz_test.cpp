#include "simulator/timeline/tikz.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "schedules/generate.h"
#include "simulator/step/cost_table.h"
#include "simulator/step/simulate.h"
#include "simulator/timeline/svg.h"

namespace pw {
namespace {

const std::string kHostile = "<&\"_\\%$#{}~^|\n";

std::size_t countOf(const std::string& text, const std::string& what) {
  std::size_t count = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + what.size())) ++count;
  return count;
}

Trace simulated(const std::string& name, const Shape& shape) {
  SyntheticCosts costs;
  costs.forward = {1'000'000};
  costs.backward = {2'000'000};
  costs.transfer = 100'000;
  return simulate(generate(name, shape), syntheticTable(costs, shape.stages));
}

/// Braces that group, and environments, are balanced; every command of the picture ends.
void expectSound(const std::string& tex) {
  int depth = 0;
  for (std::size_t i = 0; i < tex.size(); ++i) {
    if (tex[i] == '\\') {
      ++i;
      continue;
    }
    depth += tex[i] == '{' ? 1 : tex[i] == '}' ? -1 : 0;
    ASSERT_GE(depth, 0);
  }
  EXPECT_EQ(depth, 0);
  for (const char* name : {"document", "tikzpicture"}) {
    EXPECT_EQ(countOf(tex, std::string("\\begin{") + name + "}"), 1U);
    EXPECT_EQ(countOf(tex, std::string("\\end{") + name + "}"), 1U);
  }
  EXPECT_EQ(countOf(tex, "\\ifx"), countOf(tex, "\\fi\n"));
  const std::string picture = tex.substr(tex.find("\\useasboundingbox"));
  for (std::size_t at = 0; at < picture.find("\\end{tikzpicture}"); at = picture.find('\n', at) + 1)
    EXPECT_EQ(picture[picture.find('\n', at) - 1], ';') << picture.substr(at, picture.find('\n', at) - at);
}

TEST(Tikz, FillsEveryBlockOnceAndDefinesEveryColourOnce) {
  for (const bool greyscale : {false, true}) {
    const Trace trace = simulated("zbv", {4, 8, 8});
    FigureStyle style;
    style.greyscale = greyscale;
    const Figure figure = layOut({{&trace, ""}}, style);
    const std::string tex = toTikz(figure);
    expectSound(tex);
    EXPECT_EQ(countOf(tex, "\\fill["), figure.blocks.size());
    EXPECT_EQ(countOf(tex, "\\definecolor{pwF}"), 1U);
    EXPECT_EQ(countOf(tex, "\\definecolor{pwWText}"), 1U);
    EXPECT_NE(tex.find("\\useasboundingbox (0,0) rectangle (178,"), std::string::npos);
    EXPECT_EQ(tex.find("pwHatched] ") != std::string::npos, greyscale);
  }
}

TEST(Tikz, NamesCannotBeCommands) {
  const Trace trace = simulated("1f1b", {2, 2, 2});
  FigureStyle style;
  style.title = kHostile;
  style.rankLabel = kHostile;
  style.width = 300;
  const std::string tex = toTikz(layOut({{&trace, kHostile}}, style));
  expectSound(tex);
  EXPECT_EQ(countOf(tex, "\\textless{}\\&''\\_\\textbackslash{}\\%\\$\\#\\{\\}\\textasciitilde{}\\textasciicircum{}\\textbar{} "), 4U)
      << "title, lane, two ranks";
  // A comment would swallow what follows: a % that is not escaped begins the file or ends a line.
  EXPECT_EQ(countOf(tex, "%") - countOf(tex, "\\%"), 1 + countOf(tex, "%\n"));
}

TEST(FigureSvg, NamesCannotBeMarkup) {
  const Trace trace = simulated("1f1b", {2, 2, 2});
  FigureStyle style;
  style.title = kHostile;
  style.width = 300;
  const std::string svg = toSvg(layOut({{&trace, kHostile}}, style));
  EXPECT_EQ(countOf(svg, "&lt;&amp;&quot;_\\%$#{}~^| <"), 3U) << "the file's name, the title, the lane";
}

TEST(FigureSvg, GreyscaleHasNoColour) {
  const Trace trace = simulated("zbv", {4, 8, 8});
  FigureStyle style;
  style.greyscale = true;
  style.memory = true;
  for (const std::string& text : {toSvg(layOut({{&trace, ""}}, style)), toTikz(layOut({{&trace, ""}}, style))}) {
    std::size_t colours = 0;
    for (const std::string mark : {"fill:#", "stroke:#", "{HTML}{"}) {
      for (std::size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at + 1), ++colours) {
        const std::string rgb = text.substr(at + mark.size(), 6);
        EXPECT_EQ(rgb.substr(0, 2), rgb.substr(2, 2)) << rgb;
        EXPECT_EQ(rgb.substr(2, 2), rgb.substr(4, 2)) << rgb;
      }
    }
    EXPECT_GT(colours, 10U);
  }
}

TEST(FigureSvg, HasItsSizeOnPaperAndABlockForEachSpan) {
  const Trace trace = simulated("gpipe", {2, 2, 3});
  FigureStyle style;
  style.width = 85;
  const Figure figure = layOut({{&trace, ""}}, style);
  const std::string svg = toSvg(figure);
  EXPECT_NE(svg.find("width=\"85mm\""), std::string::npos);
  EXPECT_NE(svg.find("viewBox=\"0 0 321.26 "), std::string::npos) << "85 mm are 321.26 pixels of 1/96 inch";
  EXPECT_EQ(countOf(svg, "<title>"), figure.blocks.size() + 1);
  style.font = "Times New Roman";
  EXPECT_NE(toSvg(layOut({{&trace, ""}}, style)).find("'Times New Roman',sans-serif"), std::string::npos);
}

TEST(FigureSvg, FilesOfManySpansStaySmall) {
  const Trace trace = simulated("1f1b", {64, 64, 512});
  FigureStyle style;
  for (const bool greyscale : {false, true}) {
    style.greyscale = greyscale;
    EXPECT_LT(toSvg(layOut({{&trace, ""}}, style)).size(), 8'000'000U);
    const std::string tex = toTikz(layOut({{&trace, ""}}, style, kTikzFrame));
    EXPECT_LT(tex.size(), 2'000'000U);
    // What TeX's memory of 5 million words holds, of which about 600,000 are taken.
    EXPECT_LT(300 * countOf(tex, "\\fill[") + 200 * countOf(tex, " rectangle ") + 200 * countOf(tex, "\\node"), 4'000'000U);
  }
}

}  // namespace
}  // namespace pw
