// The path of a new user, by real mouse and key events, from the start page to an exported picture.

#include <QAbstractButton>
#include <QApplication>
#include <QClipboard>
#include <QComboBox>
#include <QFileInfo>
#include <QImage>
#include <QLabel>
#include <QLineEdit>
#include <QSpinBox>
#include <QTabWidget>
#include <set>

#include "app/gui/analysis/bubble_bars.h"
#include "app/gui/analysis/panel.h"
#include "app/gui/common/format.h"
#include "app/gui/editor/rank_text.h"
#include "simulator/report/compare.h"
#include "tests/app/gui/window_fixture.h"

namespace pw::gui {
namespace {

struct UserPath : WindowFixture {
  QWidget* named(const QString& accessibleName) {
    for (QWidget* w : window_->findChildren<QWidget*>()) {
      if (w->accessibleName() == accessibleName && w->isVisible()) return w;
    }
    return nullptr;
  }
  /// Chooses an entry by keys, as one who types its name.
  void choose(const QString& box, const QString& entry) {
    auto* combo = qobject_cast<QComboBox*>(named(box));
    ASSERT_NE(combo, nullptr) << box.toStdString();
    combo->setFocus();
    const int index = combo->findText(entry);
    ASSERT_GE(index, 0);
    const bool up = index < combo->currentIndex();
    while (combo->currentIndex() != index) QTest::keyClick(combo, up ? Qt::Key_Up : Qt::Key_Down);
  }
  void type(const QString& box, int value) {
    auto* spin = qobject_cast<QSpinBox*>(named(box));
    ASSERT_NE(spin, nullptr) << box.toStdString();
    spin->setFocus();
    spin->selectAll();
    QTest::keyClicks(spin, QString::number(value));
    QTest::keyClick(spin, Qt::Key_Return);
    EXPECT_EQ(spin->value(), value);
  }
};

TEST_F(UserPath, LeadsFromASampleOverADragAndARunToAPicture) {
#ifndef PW_HAS_TORCH
  GTEST_SKIP() << "this build has no Torch module, so no plan can be run";
#else
  // Open a sample.
  auto* button = window_->findChild<QAbstractButton*>("sample gpt_small");
  ASSERT_NE(button, nullptr);
  QTest::mouseClick(button, Qt::LeftButton);
  ASSERT_TRUE(settle());
  ASSERT_NE(document().prediction(), nullptr);
  EXPECT_TRUE(window_->timeline().isVisible());

  // Drag a split by two layers; figures follow while the mouse is down.
  const Design before = document().design();
  const auto prediction = document().prediction();
  auto* margin = window_->findChild<Margin*>();
  ASSERT_NE(margin, nullptr);
  ASSERT_EQ(margin->handles().size(), before.request.begins.size());
  SplitHandle* handle = margin->handles().front();
  const QPoint middle = handle->rect().center();
  QTest::mousePress(handle, Qt::LeftButton, Qt::NoModifier, middle);
  const QPoint from = handle->mapToGlobal(middle);
  std::set<NodeId> places;  // where the split has been
  for (int dy = -4; dy > -200 && places.size() < 2; dy -= 4) {
    QTest::mouseMove(handle, handle->mapFromGlobal(from + QPoint(0, dy)));
    const NodeId place = document().design().request.begins.front();
    if (place < before.request.begins.front()) places.insert(place);
  }
  EXPECT_EQ(places.size(), 2U);
  EXPECT_TRUE(document().isDragging());
  ASSERT_TRUE(QTest::qWaitFor([&] { return document().prediction() != prediction && !document().isPredicting(); }, kLongMs));
  EXPECT_NE(document().prediction()->ranks.front().peakBytes, prediction->ranks.front().peakBytes);
  EXPECT_NE(document().prediction()->ranks.front().busy, prediction->ranks.front().busy);
  QTest::mouseRelease(handle, Qt::LeftButton, Qt::NoModifier, handle->rect().center());
  EXPECT_FALSE(document().isDragging());

  // One undo brings everything back.
  QTest::keyClick(window_.get(), Qt::Key_Z, Qt::ControlModifier);
  EXPECT_EQ(document().design(), before);
  ASSERT_TRUE(settle());

  // ZB-V on two ranks.
  type("Ranks", 2);
  ASSERT_TRUE(settle());
  choose("Schedule", "zbv");
  ASSERT_TRUE(settle());
  EXPECT_EQ(document().design().request.schedule, "zbv");
  EXPECT_TRUE(document().problem().isEmpty()) << document().problem().toStdString();
  EXPECT_EQ(document().prediction()->rows->placement.stages(), 4U);

  // Run it; the measured lane arrives, and the comparison says what differs most.
  window_->runs().setProgram(PIPEWRIGHT);
  bool live = false;
  QObject::connect(&document(), &Document::measuredChanged, window_.get(),
                   [&] { live = live || (document().measured() && document().measured()->live); });
  QTest::keyClick(window_.get(), Qt::Key_R, Qt::ControlModifier);
  ASSERT_TRUE(QTest::qWaitFor([&] { return window_->runs().isBusy(); }, kLongMs));
  ASSERT_TRUE(QTest::qWaitFor([&] { return !window_->runs().isBusy() && document().measured() && !document().measured()->live; }, kLongMs))
      << window_->message().toStdString();
  EXPECT_TRUE(live) << "spans are shown as they arrive";
  EXPECT_EQ(document().measured()->trace.ranks, 2);
  EXPECT_NE(window_->timeline().scene().measured, nullptr);
  ASSERT_TRUE(QTest::qWaitFor([&] { return window_->runs().summary().startsWith("Measured"); }, kLongMs))
      << window_->runs().summary().toStdString();
  ASSERT_EQ(window_->runs().runs().size(), 1U);
  EXPECT_TRUE(window_->runs().runs().front().failure.empty());

  // The picture.
  const QString png = folder_.filePath("timeline.png");
  EXPECT_TRUE(window_->exportTo(png));
  const QImage picture(png);
  EXPECT_EQ(picture.size(), window_->timeline().pictureSize() * 2);
#endif
}

TEST_F(UserPath, ExportsEveryFormat) {
  open(sample("gpt_small.pt2"));
  for (const char* name : {"t.png", "t.pdf", "t.svg", "t.csv", "t.json"}) {
    const QString path = folder_.filePath(name);
    EXPECT_TRUE(window_->exportTo(path)) << name;
    EXPECT_GT(QFileInfo(path).size(), 500) << name;
  }
  EXPECT_TRUE(window_->exportTo(folder_.filePath("torch")));
  for (const char* name : {"schedule.csv", "pipeline.json", "run.py"})
    EXPECT_GT(QFileInfo(folder_.filePath("torch") + "/" + name).size(), 50) << name;
  EXPECT_FALSE(window_->exportTo(folder_.filePath("t.doc")));
  EXPECT_TRUE(window_->message().contains("t.doc")) << window_->message().toStdString();
  EXPECT_FALSE(window_->exportTo("/proc/none/t.png"));
  EXPECT_TRUE(window_->message().contains("/proc/none/t.png"));
}

TEST_F(UserPath, GoesFromACauseOfTheBubbleToItsPlaceInTheTimeline) {
  open(sample("gpt_small.pt2"));
  window_->showPanel(Panel::Analysis);
  auto* panel = window_->findChild<AnalysisPanel*>();
  panel->findChild<QTabWidget*>()->setCurrentIndex(1);
  auto* bars = panel->findChild<BubbleBars*>();
  ASSERT_TRUE(QTest::qWaitFor([&] { return bars->isVisible() && panel->isIdle() && !bars->ranks().empty(); }, kLongMs));
  const QRectF part = bars->partOf(Rank(0), BubbleCause::StartUp);
  ASSERT_GT(part.width(), 2) << "the first rank waits for its first gradient";
  QTest::mouseClick(bars, Qt::LeftButton, {}, part.center().toPoint());
  ASSERT_TRUE(window_->timeline().selectedBubble());
  EXPECT_EQ(window_->timeline().selectedBubble()->rank, Rank(0));
}

TEST_F(UserPath, OpensItsOwnTraceAgain) {
  open(sample("gpt_small.pt2"));
  const QString path = folder_.filePath("t.json");
  ASSERT_TRUE(window_->exportTo(path));
  const Trace predicted = traceOf(*document().prediction());
  open(path);
  ASSERT_NE(document().measured(), nullptr) << window_->message().toStdString();
  EXPECT_EQ(compare(predicted, document().measured()->trace).makespanError, 0);
}

TEST_F(UserPath, FindsCommandsInThePalette) {
  open(sample("gpt_small.pt2"));
  QTest::keyClick(window_.get(), Qt::Key_K, Qt::ControlModifier);
  auto* typed = qobject_cast<QLineEdit*>(named("Command"));
  ASSERT_NE(typed, nullptr);
  QTest::keyClicks(typed, "schedule gpipe");
  QTest::keyClick(typed, Qt::Key_Return);
  EXPECT_EQ(document().design().request.schedule, "gpipe");
}

TEST_F(UserPath, SavesAProjectAndComesBackToIt) {
  open(sample("gpt_small.pt2"));
  document().edit("Microbatches", [](Design& d) { d.request.microbatches = 6; });
  ASSERT_TRUE(settle());
  EXPECT_TRUE(document().isModified());
  const Design design = document().design();
  const QString path = folder_.filePath("p.pwproj");
  ASSERT_TRUE(window_->saveProject(path));
  EXPECT_FALSE(document().isModified());
  open(sample("vit_small.pt2"));
  open(path);
  EXPECT_EQ(document().design(), design);
  EXPECT_EQ(document().projectPath(), path);
}

/// Each says one sentence and leaves the document as it was.
struct Unusable {
  const char* name;
  QByteArray bytes;
};

TEST_F(UserPath, RefusesBrokenFilesInOneSentence) {
  open(sample("gpt_small.pt2"));
  const Design design = document().design();
  const auto prediction = document().prediction();
  QFile model(sample("gpt_small.pt2"));
  ASSERT_TRUE(model.open(QIODevice::ReadOnly));
  const QByteArray half = model.read(model.size() / 2);
  const std::vector<Unusable> files{{"empty.pt2", {}},
                                    {"half.pt2", half},
                                    {"text.pt2", "hello"},
                                    {"foreign.json", "{\"a\": [1, 2]}"},
                                    {"broken.json", "{\"format\": \"pipewright-plan\""},
                                    {"empty.csv", "\n"},
                                    {"broken.csv", "0F0,xyz\n"},
                                    {"broken.pwproj", "{\"pipewright_project\": 1}"},
                                    {"newer.pwproj", "{\"pipewright_project\": 99}"},
                                    {"broken.db", "SQLite format 3\0xxxxxxxxxxxxxxxxxxxxxxxx"},
                                    {"picture.bmp", "BM1234"},
                                    {"no labels.json", "{\"traceEvents\": [{\"ph\":\"X\",\"name\":\"a\",\"ts\":1,\"dur\":2}]}"}};
  for (const Unusable& file : files) {
    const QString path = folder_.filePath(file.name);
    QFile out(path);
    ASSERT_TRUE(out.open(QIODevice::WriteOnly) && out.write(file.bytes) == file.bytes.size());
    out.close();
    window_->showMessage(" ");
    open(path);
    EXPECT_TRUE(window_->message().size() > 15 && window_->message().count('\n') == 0)
        << file.name << ": " << window_->message().toStdString();
    EXPECT_EQ(document().design(), design) << file.name;
    EXPECT_EQ(document().prediction(), prediction) << file.name;
  }
  open(folder_.filePath("not there.pt2"));
  EXPECT_TRUE(window_->message().contains("not there.pt2"));
}

TEST_F(UserPath, OpensAClusterToEstimateFor) {
  const QString file = QStringLiteral(PW_SOURCE_DIR "/resources/clusters/a100-pcie.json");
  open(file);
  EXPECT_TRUE(window_->message().contains(QStringLiteral("open a model"))) << window_->message().toStdString();
  open(sample("gpt_small.pt2"));
  open(file);
  EXPECT_EQ(document().design().cluster, file.toStdString());
  EXPECT_EQ(document().cluster().name, "a100-pcie");
  document().undo();
  EXPECT_EQ(document().design().cluster, "cpu-workstation");
}

TEST_F(UserPath, ShortcutsWorkWhileATextFieldHasTheFocus) {
  open(sample("gpt_small.pt2"));
  const int before = document().design().request.microbatches;
  type("Microbatches", before + 5);
  ASSERT_TRUE(settle());
  auto* spin = qobject_cast<QSpinBox*>(named("Microbatches"));
  ASSERT_TRUE(spin->hasFocus());
  QTest::keyClick(spin, Qt::Key_Z, Qt::ControlModifier);
  EXPECT_EQ(document().design().request.microbatches, before) << "what was taken is undone";
  QTest::keyClick(spin, Qt::Key_K, Qt::ControlModifier);
  QWidget* palette = named("Command palette");
  ASSERT_NE(palette, nullptr) << "on X11 the field would take Ctrl+K for itself";
  palette->close();
  // What is typed and not taken yet is the field's.
  spin->setFocus();
  spin->selectAll();
  QTest::keyClicks(spin, "77");
  QTest::keyClick(spin, Qt::Key_Z, Qt::ControlModifier);
  EXPECT_EQ(document().design().request.microbatches, before);
  EXPECT_NE(spin->text(), "77");
}

TEST_F(UserPath, UndoInAFieldThatIsAsBeforeDoesNotUndoThePlan) {
  open(sample("gpt_small.pt2"));
  type("Microbatches", document().design().request.microbatches + 5);
  ASSERT_TRUE(settle());
  const Design edited = document().design();
  auto* find = qobject_cast<QLineEdit*>(named("Find a module"));
  ASSERT_NE(find, nullptr);
  find->setFocus();
  QTest::keyClicks(find, "mlp");
  QTest::keyClick(find, Qt::Key_Z, Qt::ControlModifier);
  EXPECT_EQ(find->text(), "");
  QTest::keyClick(find, Qt::Key_Z, Qt::ControlModifier);
  EXPECT_EQ(document().design(), edited);
  QTest::keyClick(find, Qt::Key_Z, Qt::ControlModifier | Qt::ShiftModifier);
  EXPECT_EQ(find->text(), "mlp");
}

TEST_F(UserPath, UndoInTheScheduleTextIsTheWindowsUnlessSomethingWrongIsTypedThere) {
  open(sample("gpt_small.pt2"));
  auto* text = window_->findChild<RankText*>();
  ASSERT_NE(text, nullptr);
  window_->showPanel(Panel::Schedule);
  ASSERT_TRUE(settle());
  const Design before = document().design();
  const QString csv = text->toPlainText();
  ASSERT_TRUE(csv.startsWith("0F0,0F1,")) << csv.toStdString();
  text->setFocus();
  const auto select = [&](int from, int to) {
    QTextCursor cursor = text->textCursor();
    cursor.setPosition(from);
    cursor.setPosition(to, QTextCursor::KeepAnchor);
    text->setTextCursor(cursor);
  };
  select(0, 7);
  QTest::keyClicks(text, "0F1,0F0");
  ASSERT_TRUE(QTest::qWaitFor([&] { return document().design() != before; }, kLongMs));
  ASSERT_TRUE(settle());
  QTest::keyClick(text, Qt::Key_Z, Qt::ControlModifier);
  EXPECT_EQ(document().design(), before);
  ASSERT_TRUE(settle());
  EXPECT_EQ(text->toPlainText(), csv);

  select(0, 3);
  QTest::keyClicks(text, "0Q9");
  ASSERT_TRUE(settle());
  EXPECT_EQ(document().design(), before) << "nothing that could be undone";
  QTest::keyClick(text, Qt::Key_Z, Qt::ControlModifier);
  EXPECT_EQ(text->toPlainText(), csv);
  EXPECT_EQ(document().design(), before);
}

TEST_F(UserPath, APictureHasAllRanksHoweverSmallTheWindowIs) {
  open(sample("gpt_small.pt2"));
  document().edit("Ranks", [](Design& d) {
    d.request.ranks = 8;
    d.request.chunks = 1;
    d.request.begins.clear();
  });
  ASSERT_TRUE(settle());
  window_->resize(900, 420);
  ASSERT_LT(window_->timeline().height(), window_->timeline().pictureSize().height()) << "the window does not show all ranks";
  const QString path = folder_.filePath("t.png");
  ASSERT_TRUE(window_->exportTo(path));
  EXPECT_EQ(QImage(path).height(), 2 * window_->timeline().pictureSize().height());
  ASSERT_TRUE(window_->exportTo(folder_.filePath("t.pdf")));
  ASSERT_TRUE(window_->exportTo(folder_.filePath("t.svg")));
  QFile svg(folder_.filePath("t.svg"));
  ASSERT_TRUE(svg.open(QIODevice::ReadOnly));
  const QByteArray drawing = svg.readAll();
  EXPECT_FALSE(drawing.contains("<image")) << "shapes and text only";
  for (int rank = 0; rank < 8; ++rank) EXPECT_TRUE(drawing.contains(QByteArray(">rank ") + QByteArray::number(rank))) << rank;
}

/// The visible widget of that kind with that accessible name; null: none.
template <class Widget>
Widget* shown(const QWidget& window, const char* name) {
  for (Widget* widget : window.findChildren<Widget*>()) {
    if (widget->accessibleName() == QLatin1String(name) && widget->isVisibleTo(&window)) return widget;
  }
  return nullptr;
}

TEST_F(UserPath, ATraceOfAnotherToolShowsItsOwnScheduleAndFigures) {
  open(QStringLiteral(PW_SOURCE_DIR "/tests/data/primus/pp8"));
  ASSERT_TRUE(shown<QComboBox>(*window_, "Schedule"));
  EXPECT_EQ(shown<QComboBox>(*window_, "Schedule")->currentText(), "1f1b (as in the trace)");
  EXPECT_EQ(shown<QSpinBox>(*window_, "Ranks")->value(), 8);
  EXPECT_EQ(shown<QSpinBox>(*window_, "Microbatches")->value(), 16) << "num_mbs of config.json";
  EXPECT_EQ(shown<QSpinBox>(*window_, "Replicas"), nullptr) << "the trace does not say it";
  EXPECT_EQ(shown<QLabel>(*window_, "Lower bound"), nullptr);
  const Trace& trace = document().measured()->trace;
  Ns busy = 0, first = trace.spans.back().end, last = 0;
  for (const Span& span : trace.spans) {
    if (!isCompute(span.kind)) continue;
    busy += span.end - span.start;
    first = std::min(first, span.start);
    last = std::max(last, span.end);
  }
  const double idle = 1 - static_cast<double>(busy) / (8 * static_cast<double>(last - first));
  EXPECT_EQ(shown<QLabel>(*window_, "Bubble")->text(), percentText(idle));

  open(sample("gpt_small.pt2"));
  EXPECT_TRUE(shown<QSpinBox>(*window_, "Replicas"));
  EXPECT_EQ(shown<QSpinBox>(*window_, "Ranks")->value(), document().design().request.ranks);
  EXPECT_TRUE(shown<QLabel>(*window_, "Lower bound"));
  EXPECT_FALSE(shown<QComboBox>(*window_, "Schedule")->currentText().contains("trace"));
}

TEST_F(UserPath, AnEmptyWindowHasNoPicture) {
  for (const char* name : {"t.png", "t.svg", "t.csv"}) {
    EXPECT_FALSE(window_->exportTo(folder_.filePath(name))) << name;
    EXPECT_TRUE(window_->message().contains("no timeline")) << window_->message().toStdString();
    EXPECT_FALSE(QFileInfo::exists(folder_.filePath(name))) << name;
  }
}

}  // namespace
}  // namespace pw::gui
