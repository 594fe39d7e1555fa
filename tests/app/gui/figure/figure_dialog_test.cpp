// The figure dialog in its window: fields, preview, command line, what it remembers.
#include "app/gui/figure/dialog.h"

#include <QAbstractButton>
#include <QAction>
#include <QCheckBox>
#include <QClipboard>
#include <QComboBox>
#include <QDoubleSpinBox>
#include <QFile>
#include <QLabel>
#include <QLineEdit>
#include <QProcess>
#include <QPushButton>
#include <QScrollArea>
#include <QSettings>
#include <set>

#include "app/gui/figure/form.h"
#include "app/gui/figure/preview.h"
#include "simulator/plan/plan.h"
#include "tests/app/gui/window_fixture.h"

namespace pw::gui {
namespace {

class FigureDialogs : public WindowFixture {
 protected:
  void SetUp() override {
    QSettings().remove("figure");
    WindowFixture::SetUp();
    open(sample("gpt_small.pt2"));
  }
  [[nodiscard]] std::unique_ptr<FigureDialog> dialog(bool remembers = false) {
    auto dialog = std::make_unique<FigureDialog>(figureSource(document()), remembers, window_.get());
    dialog->show();
    EXPECT_TRUE(QTest::qWaitForWindowExposed(dialog.get()));
    return dialog;
  }
  template <class Field>
  static Field* field(const QWidget& dialog, const char* name) {
    for (Field* f : dialog.findChildren<Field*>()) {
      if (f->accessibleName() == QString::fromUtf8(name) || f->property("text").toString() == QString::fromUtf8(name)) return f;
    }
    ADD_FAILURE() << name;
    return nullptr;
  }
  static void type(QLineEdit* line, const QString& text) {
    line->setFocus();
    line->selectAll();
    QTest::keyClick(line, Qt::Key_Delete);
    QTest::keyClicks(line, text);
  }
  static std::set<std::string> rankNames(const Figure& figure) {
    std::set<std::string> names;
    for (const FigureText& text : figure.texts) {
      if (text.role == TextRole::Name) names.insert(text.text);
    }
    return names;
  }
};

TEST_F(FigureDialogs, DrawsAllRanksWhateverTheWindowShows) {
  window_->resize(900, 420);
  ASSERT_LT(window_->timeline().height(), window_->timeline().pictureSize().height());
  const auto d = dialog();
  const auto ranks = static_cast<std::size_t>(document().prediction()->timeline.ranks.size());
  EXPECT_GE(ranks, 2U);
  EXPECT_EQ(rankNames(d->preview().figure()).size(), ranks);
}

TEST_F(FigureDialogs, FieldsChangeThePreview) {
  const auto d = dialog();
  EXPECT_DOUBLE_EQ(d->preview().figure().width, 178);
  auto* width = field<QDoubleSpinBox>(*d, "Width in millimetres");
  width->setValue(85);
  EXPECT_EQ(field<QComboBox>(*d, "Usual widths")->currentText(), "One column of two");
  ASSERT_TRUE(QTest::qWaitFor([&] { return d->preview().figure().width == 85; }, kLongMs));
  type(field<QLineEdit>(*d, "Ranks to draw"), "1");
  ASSERT_TRUE(QTest::qWaitFor([&] { return rankNames(d->preview().figure()) == std::set<std::string>{"rank 1"}; }, kLongMs));
  field<QCheckBox>(*d, "&Greyscale, hatched")->setChecked(true);
  ASSERT_TRUE(QTest::qWaitFor([&] { return d->preview().figure().greyscale; }, kLongMs));
  EXPECT_TRUE(d->state().startsWith("85.0 ×")) << d->state().toStdString();
  field<QPushButton>(*d, "Default &values")->click();
  ASSERT_TRUE(QTest::qWaitFor([&] { return d->preview().figure().width == 178; }, kLongMs));
  EXPECT_FALSE(d->preview().figure().title.empty());
}

TEST_F(FigureDialogs, SaysWhatIsWrongWithAFieldAndSavesNothing) {
  const auto d = dialog();
  for (const char* ranks : {"a", "0-99", "3-1"}) {
    type(field<QLineEdit>(*d, "Ranks to draw"), ranks);
    ASSERT_TRUE(QTest::qWaitFor([&] { return !field<QPushButton>(*d, "&Save…")->isEnabled(); }, kLongMs)) << ranks;
    EXPECT_TRUE(d->state().contains("rank", Qt::CaseInsensitive)) << d->state().toStdString();
    EXPECT_FALSE(d->save(folder_.filePath("f.svg")));
    EXPECT_FALSE(QFile::exists(folder_.filePath("f.svg")));
    EXPECT_TRUE(ranks[0] != 'a' || d->commandLine().isEmpty());
    type(field<QLineEdit>(*d, "Ranks to draw"), "");
    ASSERT_TRUE(QTest::qWaitFor([&] { return field<QPushButton>(*d, "&Save…")->isEnabled(); }, kLongMs));
  }
  EXPECT_FALSE(d->save(folder_.filePath("f.doc")));
  EXPECT_TRUE(d->state().contains("f.doc"));
}

TEST_F(FigureDialogs, CommandLineMakesTheSameFile) {
  const auto d = dialog();
  FigureStyle style;
  style.width = 88.9;
  style.title = "it's <a> $title";
  style.rankLabel = "GPU";
  style.greyscale = style.busy = style.memory = true;
  style.legend = false;
  style.times = TimeRange{1'000'000, 3'000'000};
  d->form().setStyle(style);
  ASSERT_TRUE(d->save(folder_.filePath("app.svg"))) << d->state().toStdString();
  field<QPushButton>(*d, "Copy comm&and line")->click();
  QString line = QApplication::clipboard()->text();
  ASSERT_TRUE(line.startsWith("pipewright export plan.json --to svg --width 88.9mm")) << line.toStdString();
  QFile plan(folder_.filePath("plan.json"));
  ASSERT_TRUE(plan.open(QIODevice::WriteOnly));
  plan.write(QByteArray::fromStdString(toJson(document().plan())));
  plan.close();
  line.replace(" --out app.svg", " --out cli.svg");
  QProcess shell;
  shell.setWorkingDirectory(folder_.path());
  shell.start("/bin/sh", {"-c", "'" PIPEWRIGHT "'" + line.mid(int(qstrlen("pipewright")))});
  ASSERT_TRUE(shell.waitForFinished(kLongMs));
  ASSERT_EQ(shell.exitCode(), 0) << shell.readAllStandardError().toStdString();
  QFile app(folder_.filePath("app.svg")), cli(folder_.filePath("cli.svg"));
  ASSERT_TRUE(app.open(QIODevice::ReadOnly) && cli.open(QIODevice::ReadOnly));
  EXPECT_EQ(app.readAll(), cli.readAll());
}

TEST_F(FigureDialogs, RemembersItsSettingsButNotThoseOfTheDocument) {
  {
    const auto d = dialog(true);
    FigureStyle style;
    style.width = 120;
    style.greyscale = true;
    style.ranks = {{Rank(0), Rank(0)}};
    style.title = "mine";
    d->form().setStyle(style);
    d->form().setDpi(600);
    ASSERT_TRUE(d->save(folder_.filePath("f.tex")));
    d->reject();
  }
  const auto d = dialog(true);
  EXPECT_DOUBLE_EQ(d->form().style().width, 120);
  EXPECT_TRUE(d->form().style().greyscale);
  EXPECT_EQ(d->form().dpi(), 600);
  EXPECT_TRUE(d->form().style().ranks.empty());
  EXPECT_NE(d->form().style().title, "mine");
  EXPECT_TRUE(d->commandLine().contains("--to tikz")) << "as the file saved last";
}

TEST_F(FigureDialogs, TitlesOfTwoStepsAreGreyWhereOneIsDrawn) {
  const auto d = dialog();
  for (const char* const name : {"Title above the predicted step", "Title above the measured step"})
    EXPECT_FALSE(field<QLineEdit>(*d, name)->isEnabled()) << name;
  for (const char* const label : {"&Predicted title", "&Measured title"}) EXPECT_FALSE(field<QLabel>(*d, label)->isEnabled()) << label;
  EXPECT_TRUE(field<QLabel>(*d, "&Title")->isEnabled());
}

TEST_F(FigureDialogs, OpensFromTheMenuFitsASmallScreenAndIsReachedByKeys) {
  window_->resize(1024, 700);
  const auto& commands = window_->commands();
  const auto figure = std::ranges::find_if(commands, [](const QAction* action) { return action->text() == QString::fromUtf8("Fi&gure…"); });
  ASSERT_NE(figure, commands.end());
  (*figure)->trigger();
  auto* d = window_->findChild<FigureDialog*>();
  ASSERT_NE(d, nullptr);
  ASSERT_TRUE(QTest::qWaitForWindowExposed(d));
  EXPECT_LE(d->width(), 1024);
  EXPECT_LE(d->height(), 700);
  const auto* scroll = d->findChild<QScrollArea*>();
  EXPECT_LE(d->form().height(), scroll->viewport()->height()) << "every field is in sight";
  EXPECT_LE(d->form().width(), scroll->viewport()->width());
  // Each mnemonic is there once, each field has a name.
  std::set<QChar> keys;
  for (const QWidget* w : d->findChildren<QWidget*>()) {
    const QString text = w->property("text").toString();
    const qsizetype at = text.indexOf(QLatin1Char('&'));
    if ((qobject_cast<const QLabel*>(w) || qobject_cast<const QAbstractButton*>(w)) && at >= 0) {
      EXPECT_TRUE(keys.insert(text.at(at + 1).toLower()).second) << text.toStdString();
    }
    const bool isField = qobject_cast<const QComboBox*>(w) || qobject_cast<const QAbstractSpinBox*>(w) ||
                         (qobject_cast<const QLineEdit*>(w) && w->parentWidget() == &d->form());
    EXPECT_TRUE(!isField || !w->accessibleName().isEmpty()) << w->metaObject()->className();
  }
  EXPECT_GE(keys.size(), 18U);
  // By Tab from the first field to the last button.
  std::set<QString> reached;
  const QWidget* at = d;
  for (int i = 0; i < 200; ++i) {
    at = at->nextInFocusChain();
    if ((at->focusPolicy() & Qt::TabFocus) != 0 && at->isVisibleTo(d))
      reached.insert(at->accessibleName().isEmpty() ? at->property("text").toString() : at->accessibleName());
  }
  for (const char* name : {"Steps to draw", "Font family", "Ranks to draw", "Memor&y", "&Save…"})
    EXPECT_TRUE(reached.contains(name)) << name;
  QTest::keyClick(d, Qt::Key_Escape);
  EXPECT_FALSE(d->isVisible());
}

}  // namespace
}  // namespace pw::gui
