// Figures as files: what the app writes has the figure's size, its text and nothing but its colours.
#include "app/gui/figure/files.h"

#include <gtest/gtest.h>

#include <QFile>
#include <QImage>
#include <QSvgRenderer>
#include <QTemporaryDir>
#include <QXmlStreamReader>

#include "app/gui/figure/source.h"
#include "schedules/error.h"
#include "schedules/generate.h"
#include "simulator/step/cost_table.h"
#include "simulator/step/simulate.h"
#include "simulator/timeline/svg.h"
#include "tests/app/gui/figure/pdf_text.h"

namespace pw::gui {
namespace {

Trace simulated(const std::string& name, const Shape& shape) {
  SyntheticCosts costs;
  costs.forward = {1'000'000};
  costs.backward = {2'000'000};
  return simulate(generate(name, shape), syntheticTable(costs, shape.stages));
}

FigureSource sourceOf(Trace trace) {
  FigureSource source;
  source.predicted = std::move(trace);
  source.model = QStringLiteral("a model");
  source.schedule = QStringLiteral("1f1b");
  return source;
}

QByteArray contentOf(const QString& path) {
  QFile file(path);
  EXPECT_TRUE(file.open(QIODevice::ReadOnly)) << path.toStdString();
  return file.readAll();
}

TEST(FigureFiles, PdfHasTheFiguresSizeAndTheNamesOfAllRanksAsText) {
  const FigureSource source = sourceOf(simulated("1f1b", {32, 32, 32}));
  FigureStyle style;
  style.title = "Thirty-two <ranks>";
  const Figure figure = figureOf(source, FigureSteps::Predicted, style);
  const QByteArray pdf = pdfOf(figure);
  // 178 mm are 504.6 points of 1/72 inch; Qt writes whole ones.
  const QRegularExpressionMatch box =
      QRegularExpression(QStringLiteral("/MediaBox \\[0 0 ([0-9.]+) ([0-9.]+)\\]")).match(QString::fromLatin1(pdf));
  EXPECT_NEAR(box.captured(1).toDouble(), 178 * 72 / 25.4, 0.51);
  EXPECT_NEAR(box.captured(2).toDouble(), figure.height * 72 / 25.4, 0.51);
  const QStringList lines = textOfPdf(pdf).split(QLatin1Char('\n'));
  EXPECT_TRUE(lines.contains(QStringLiteral("Thirty-two <ranks>")));
  for (int rank = 0; rank < 32; ++rank) EXPECT_TRUE(lines.contains(QStringLiteral("rank %1").arg(rank))) << rank;
  EXPECT_TRUE(lines.contains(QStringLiteral("backward")));
}

TEST(FigureFiles, PngHasTheResolutionThatWasChosen) {
  const QTemporaryDir folder;
  const FigureSource source = sourceOf(simulated("gpipe", {2, 2, 3}));
  FigureStyle style;
  style.width = 25.4;
  style.fontSize = 4;
  style.messages = style.legend = false;
  const Figure figure = figureOf(source, FigureSteps::Predicted, style);
  writeFigure(figure, folder.filePath("f.png"), 600);
  const QImage picture(folder.filePath("f.png"));
  EXPECT_EQ(picture.width(), 600) << "an inch at 600 dpi";
  EXPECT_NEAR(picture.dotsPerMeterX(), 600 / 0.0254, 1);
  // In the middle of rank 0's first forward is its colour.
  const FigureBox& box = figure.blocks.front().box;
  const auto dots = [](double mm) { return static_cast<int>(mm * 600 / 25.4); };
  EXPECT_EQ(picture.pixelColor(dots(box.x + box.width / 4), dots(box.y + box.height / 8)), QColor(0x56, 0xb4, 0xe9));
  EXPECT_EQ(picture.pixelColor(2, picture.height() - 2), QColor(Qt::white));
  style.width = 1000;
  EXPECT_THROW(writeFigure(figureOf(source, FigureSteps::Predicted, style), folder.filePath("g.png"), 2400), UsageError);
}

TEST(FigureFiles, GreyscalePictureHasNoColour) {
  const QTemporaryDir folder;
  const FigureSource source = sourceOf(simulated("zbv", {4, 8, 8}));
  FigureStyle style;
  style.greyscale = style.memory = style.busy = true;
  writeFigure(figureOf(source, FigureSteps::Predicted, style), folder.filePath("f.png"), 100);
  const QImage picture(folder.filePath("f.png"));
  std::set<int> greys;
  for (int y = 0; y < picture.height(); ++y) {
    for (int x = 0; x < picture.width(); ++x) {
      const QRgb rgb = picture.pixel(x, y);
      ASSERT_TRUE(qRed(rgb) == qGreen(rgb) && qGreen(rgb) == qBlue(rgb)) << x << ", " << y;
      greys.insert(qRed(rgb));
    }
  }
  EXPECT_GT(greys.size(), 4U);
}

TEST(FigureFiles, SvgIsXmlThatQtDraws) {
  const QTemporaryDir folder;
  const FigureSource source = sourceOf(simulated("zbv", {4, 8, 8}));
  for (const bool greyscale : {false, true}) {
    FigureStyle style;
    style.greyscale = greyscale;
    style.memory = true;
    style.title = style.rankLabel = "<&\"_\\%$#{}";
    const Figure figure = figureOf(source, FigureSteps::Predicted, style);
    writeFigure(figure, folder.filePath("f.svg"));
    const QByteArray svg = contentOf(folder.filePath("f.svg"));
    EXPECT_EQ(svg.toStdString(), toSvg(figure)) << "the same as that of the command line";
    QXmlStreamReader reader(svg);
    QStringList texts;
    while (!reader.atEnd()) {
      if (reader.readNext() == QXmlStreamReader::StartElement && reader.name() == QLatin1String("text")) texts << reader.readElementText();
    }
    EXPECT_FALSE(reader.hasError()) << reader.errorString().toStdString();
    EXPECT_TRUE(texts.contains(QStringLiteral("<&\"_\\%$#{} 3")));
    QSvgRenderer renderer(svg);
    EXPECT_TRUE(renderer.isValid());
    EXPECT_NEAR(renderer.viewBoxF().width(), 178 * 96 / 25.4, 0.01);
  }
}

TEST(FigureFiles, RefusesOtherTypes) {
  const FigureSource source = sourceOf(simulated("gpipe", {2, 2, 2}));
  const Figure figure = figureOf(source, FigureSteps::Predicted, {});
  EXPECT_THROW(writeFigure(figure, "f.doc"), UsageError);
  EXPECT_THROW(writeFigure(figure, "/proc/none/f.svg"), Error);
  EXPECT_TRUE(isFigureFile("a.b/F.TEX"));
  EXPECT_FALSE(isFigureFile("svg"));
}

TEST(FigureSource, NamesWhatItDraws) {
  FigureSource source = sourceOf(simulated("gpipe", {2, 2, 2}));
  EXPECT_TRUE(has(source, FigureSteps::Predicted));
  EXPECT_FALSE(has(source, FigureSteps::Both));
  EXPECT_EQ(usualTitle(source, FigureSteps::Predicted), "a model, 1f1b, predicted");
  FigureStyle style;
  style.title = "it's $HOME";
  EXPECT_EQ(figureCall(source, FigureSteps::Predicted, style, "f.tex", 300),
            "pipewright export plan.json --to tikz --title 'it'\\''s $HOME' --out f.tex");
  auto measured = std::make_shared<Measured>();
  measured->title = QStringLiteral("run 7");
  measured->trace = *source.predicted;
  measured->run.emplace();
  measured->run->id = RunId(7);
  measured->run->predicted = *source.predicted;
  measured->step = 3;
  source.measured = measured;
  source.store = QStringLiteral("/data/my runs.db");
  EXPECT_EQ(usualSteps(source), FigureSteps::Measured);
  EXPECT_EQ(figureCall(source, FigureSteps::Both, {}, "f.svg", 300),
            "pipewright export --store '/data/my runs.db' --run 7 --step 3 --both --to svg --title '' --out f.svg");
  EXPECT_FALSE(callNeedsPlan(source, FigureSteps::Both));
  FigureSource changed = source;  // the plan on the screen is another one by now
  changed.predicted = source.measured->run->predicted;
  for (Span& span : changed.predicted->spans) span.start *= 2, span.end *= 2;
  EXPECT_TRUE(figureCall(changed, FigureSteps::Both, {}, "f.svg", 300).contains("--predicted-title 'Predicted for run 7'"))
      << figureCall(changed, FigureSteps::Both, {}, "f.svg", 300).toStdString();
  FigureStyle own;
  own.predictedTitle = "Mine";
  EXPECT_FALSE(figureCall(changed, FigureSteps::Both, own, "f.svg", 300).contains("for run"));
  EXPECT_EQ(figureCall(source, FigureSteps::Measured, {}, "f.png", 600),
            "pipewright-gui '/data/my runs.db' --show-run 7 --export f.png --dpi 600 --title ''");
  own.font = "Times New Roman";  // of one step no lane has a title, and TikZ has kinds of fonts
  EXPECT_EQ(figureCall(source, FigureSteps::Measured, own, "f.tex", 300),
            "pipewright export --store '/data/my runs.db' --run 7 --step 3 --to tikz --font serif --title '' --out f.tex");
}

TEST(FigureSource, NamesAPinnedPlanAndHasNoCommandLineForIt) {
  FigureSource source = sourceOf(simulated("gpipe", {2, 2, 2}));
  auto pinned = std::make_shared<Measured>();
  pinned->trace = *source.predicted;
  pinned->pinnedAs = QStringLiteral("A");
  source.measured = pinned;
  std::vector<std::string> headings;
  for (const FigureText& text : figureOf(source, FigureSteps::Both, {}).texts) {
    if (text.role == TextRole::Heading) headings.push_back(text.text);
  }
  EXPECT_EQ(headings, (std::vector<std::string>{"This plan", "Plan A"}));
  EXPECT_EQ(figureCall(source, FigureSteps::Both, {}, "f.svg", 300), "");
  EXPECT_NE(figureCall(source, FigureSteps::Predicted, {}, "f.svg", 300), "");
}

}  // namespace
}  // namespace pw::gui
