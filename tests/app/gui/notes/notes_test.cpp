#include "app/gui/document/notes.h"

#include <QPushButton>
#include <QToolTip>
#include <QTreeWidget>

#include "app/gui/document/project.h"
#include "app/gui/notes/panel.h"
#include "app/gui/timeline/drawing/note_flags.h"
#include "app/gui/timeline/note_marks.h"
#include "schedules/error.h"
#include "tests/app/gui/next_turn.h"
#include "tests/app/gui/timeline/timeline_fixture.h"

namespace pw::gui {
namespace {

struct NotesShown : TimelineFixture {
  [[nodiscard]] const std::vector<Note>& notes() const { return document.design().notes; }
  [[nodiscard]] NoteField* field() const { return widget.findChild<NoteField*>(); }
  [[nodiscard]] NotesPanel& panel() {
    if (!panel_) {
      panel_ = std::make_unique<NotesPanel>(document, widget);
      panel_->resize(800, 200);
      panel_->show();
    }
    return *panel_;
  }
  void write(const QString& text) {
    ASSERT_TRUE(field()->isVisible());
    field()->clear();
    QTest::keyClicks(field(), text);
    QTest::keyClick(field(), Qt::Key_Return);
    EXPECT_FALSE(field()->isVisible());
  }
  /// In the lane, at the flag of a note.
  [[nodiscard]] QPoint flagOf(std::size_t note) const {
    const Scene& scene = widget.scene();
    return {xOf(scene.notes.at(note).time) + 3, rulerHeight(scene) - noteLaneHeight(scene) / 2};
  }

  /// The step of a stored run, measured below the prediction.
  void showRun(const RunName& name) {
    measure([](CostTable& costs) { costs.stages[1].backward *= 2; });
    auto step = std::make_shared<Measured>(*document.measured());
    step->run = RunRecord();
    step->run->id = name.id;
    step->run->startedAt = name.startedAt;
    document.setMeasured(step);
  }

  std::unique_ptr<NotesPanel> panel_;
};

TEST_F(NotesShown, NWritesOneAtTheSelectedBlockInOneStepOfUndo) {
  const int before = rulerHeight(widget.scene());
  const auto prediction = document.prediction();
  click(middleOf(at(2, SpanKind::Backward, 2, 3)));
  key(Qt::Key_N);
  write(QStringLiteral("wf  why so late?"));  // W and F are keys of the timeline
  ASSERT_EQ(notes().size(), 1U);
  EXPECT_EQ(notes()[0].text, "wf why so late?");
  ASSERT_TRUE(notes()[0].block);
  EXPECT_EQ(*notes()[0].block, (BlockName{false, Rank(2), {SpanKind::Backward, Stage(2), Microbatch(3), Rank(2)}}));
  ASSERT_EQ(widget.scene().notes.size(), 1U);
  EXPECT_EQ(widget.scene().notes[0].span, at(2, SpanKind::Backward, 2, 3));
  EXPECT_GT(rulerHeight(widget.scene()), before) << "its lane";
  EXPECT_FALSE(document.isPredicting()) << "no prediction depends on notes";
  EXPECT_EQ(document.prediction(), prediction);
  EXPECT_TRUE(document.isModified());
  EXPECT_EQ(document.undoText(), "Add note");
  document.undo();
  EXPECT_TRUE(notes().empty());
  EXPECT_EQ(rulerHeight(widget.scene()), before);
  document.redo();
  EXPECT_EQ(notes().size(), 1U);
}

TEST_F(NotesShown, EscapeAndAnEmptyTextAddNothing) {
  click(middleOf(at(0, SpanKind::Forward, 0, 0)));
  key(Qt::Key_N);
  QTest::keyClicks(field(), QStringLiteral("no"));
  QTest::keyClick(field(), Qt::Key_Escape);
  EXPECT_FALSE(field()->isVisible());
  EXPECT_TRUE(selected()) << "Escape was the field's";
  key(Qt::Key_N);
  write(QString());
  EXPECT_TRUE(notes().empty());
  EXPECT_TRUE(document.undoText().isEmpty());
}

TEST_F(NotesShown, ANoteGoesWhereItsBlockGoes) {
  const SourcedSpan block = at(3, SpanKind::Forward, 3, 1);
  widget.select(block);
  key(Qt::Key_N);
  write(QStringLiteral("here"));
  const Ns before = widget.scene().notes[0].time;
  EXPECT_EQ(before, spanOf(timeline(), block.span).start);
  recost([](CostTable& costs) { costs.stages[0].forward *= 2; });
  EXPECT_GT(widget.scene().notes[0].time, before);
  EXPECT_EQ(widget.scene().notes[0].time, spanOf(timeline(), at(3, SpanKind::Forward, 3, 1).span).start);
  open("gpipe", 2, 4);  // another document: its notes are its own
  EXPECT_TRUE(widget.scene().notes.empty());
}

TEST_F(NotesShown, ANoteAtABubbleGoesWhereTheBubbleGoes) {
  // Rank 3 waits for its first forward, then computes to the end of its row.
  const Ns first = spanOf(timeline(), at(3, SpanKind::Forward, 3, 0).span).start;
  const auto last = [this] { return spanOf(timeline(), at(3, SpanKind::Backward, 3, 7).span).end; };
  click({xOf(first / 2), yOf(3)});
  key(Qt::Key_N);
  write(QStringLiteral("start"));
  click({xOf((last() + timeline().end) / 2), yOf(3)});
  key(Qt::Key_N);
  write(QStringLiteral("drain"));
  ASSERT_EQ(notes().size(), 2U);
  EXPECT_EQ(notes()[0].place, Note::Place::BubbleBefore);
  EXPECT_EQ(*notes()[0].block, (BlockName{false, Rank(3), {SpanKind::Forward, Stage(3), Microbatch(0), Rank(3)}}));
  EXPECT_EQ(widget.scene().notes[0].time, 0);
  EXPECT_EQ(notes()[1].place, Note::Place::BubbleAfter);
  const Ns before = last();
  EXPECT_EQ(widget.scene().notes[1].time, before);
  recost([](CostTable& costs) { costs.stages[0].forward *= 2; });
  ASSERT_GT(last(), before);
  EXPECT_EQ(widget.scene().notes[1].time, last());
  widget.clearSelection();
  widget.goToNote(1);
  EXPECT_EQ(widget.scene().notes[1].bubble, (BubbleRef{Source::Predicted, Rank(3), 16}));
  EXPECT_FALSE(selected()) << "the bubble, not the block beside it";
  key(Qt::Key_N);
  write(QStringLiteral("why idle?"));
  ASSERT_EQ(notes().size(), 2U) << "it is the note of that bubble";
  EXPECT_EQ(notes()[1].text, "why idle?");
  Project saved;
  saved.design.notes = notes();
  EXPECT_EQ(parseProject(toJson(saved), "p").design.notes, notes());
  const auto* list = panel().findChild<QTreeWidget*>();
  EXPECT_EQ(list->topLevelItem(0)->text(1), "bubble before 3F0, rank 3");
}

// It is then shown at the block that it was before, and is that block's note.
TEST_F(NotesShown, ANoteWhoseBubbleHasClosedIsOfTheBlock) {
  // Rank 3 is the slow one: rank 2 waits for its B1.
  recost([](CostTable& costs) { costs.stages[3].forward *= 3, costs.stages[3].backward *= 3; });
  const auto block = [this] { return at(2, SpanKind::Backward, 2, 1); };
  const Ns from = spanOf(timeline(), at(2, SpanKind::Forward, 2, 2).span).end, to = spanOf(timeline(), block().span).start;
  ASSERT_LT(from, to);
  click({xOf((from + to) / 2), yOf(2)});
  key(Qt::Key_N);
  write(QStringLiteral("why?"));
  ASSERT_EQ(notes().size(), 1U);
  ASSERT_EQ(notes()[0].place, Note::Place::BubbleBefore);
  EXPECT_TRUE(widget.scene().notes[0].bubble);
  // Now rank 2 is, which waits for nobody once it has begun.
  recost([](CostTable& costs) { costs.stages[2].forward *= 10, costs.stages[2].backward *= 10; });
  ASSERT_EQ(spanOf(timeline(), at(2, SpanKind::Forward, 2, 2).span).end, spanOf(timeline(), block().span).start);
  EXPECT_FALSE(widget.scene().notes[0].bubble);
  EXPECT_EQ(widget.scene().notes[0].time, spanOf(timeline(), block().span).start);
  widget.clearSelection();
  widget.select(block());
  key(Qt::Key_N);
  write(QStringLiteral("no more"));
  ASSERT_EQ(notes().size(), 1U) << "not a second one at the same place";
  EXPECT_EQ(notes()[0].text, "no more");
  recost([](CostTable& costs) { costs.stages[2].forward /= 10, costs.stages[2].backward /= 10; });
  EXPECT_TRUE(widget.scene().notes[0].bubble) << "it is the bubble's again";
}

TEST_F(NotesShown, BookmarksAreSetAndTakenBackAtTheMouse) {
  const int y = yOf(1);
  moveTo({xOf(5 * kMs), y});
  key(Qt::Key_F2, Qt::ControlModifier);
  moveTo({xOf(9 * kMs), y});
  key(Qt::Key_F2, Qt::ControlModifier);
  ASSERT_EQ(notes().size(), 2U);
  EXPECT_TRUE(notes()[0].text.empty());
  EXPECT_FALSE(notes()[0].block);
  EXPECT_NEAR(static_cast<double>(notes()[0].time), 5e6, 2 * widget.viewport().nsPerPixel);
  key(Qt::Key_F2, Qt::ControlModifier);  // the mouse has not moved: the same one
  ASSERT_EQ(notes().size(), 1U);
  EXPECT_EQ(document.undoText(), "Delete bookmark");
  document.undo();
  EXPECT_EQ(notes().size(), 2U);
}

TEST_F(NotesShown, F2GoesFromOneToTheNextInTimeAndAround) {
  for (const auto& [rank, microbatch] : {std::pair(1, 5), std::pair(0, 0), std::pair(3, 2)}) {
    widget.select(at(rank, SpanKind::Forward, rank, microbatch));
    key(Qt::Key_N);
    write(QStringLiteral("note"));
  }
  widget.clearSelection();
  key(Qt::Key_F2);  // after the one added last, which is in the middle
  EXPECT_EQ(selected(), at(1, SpanKind::Forward, 1, 5));
  key(Qt::Key_F2);
  EXPECT_EQ(selected(), at(0, SpanKind::Forward, 0, 0));
  key(Qt::Key_F2, Qt::ShiftModifier);
  EXPECT_EQ(selected(), at(1, SpanKind::Forward, 1, 5));
  key(Qt::Key_N);  // writes the one that is there
  write(QStringLiteral("another text"));
  EXPECT_EQ(notes()[0].text, "another text");
  EXPECT_EQ(document.undoText(), "Edit note");
  key(Qt::Key_Delete);
  EXPECT_EQ(notes().size(), 2U);
}

TEST_F(NotesShown, AClickOnAFlagGoesThereADoubleClickWritesIt) {
  widget.select(at(2, SpanKind::Forward, 2, 4));
  key(Qt::Key_N);
  write(QStringLiteral("slow?"));
  widget.clearSelection();
  click(flagOf(0));
  EXPECT_EQ(selected(), at(2, SpanKind::Forward, 2, 4));
  EXPECT_FALSE(widget.scene().range) << "no range begins there";
  doubleClick(flagOf(0));
  write(QStringLiteral("not so slow"));
  EXPECT_EQ(notes()[0].text, "not so slow");
}

TEST_F(NotesShown, ThePanelListsThemInOrderOfTimeAndGoesThere) {
  auto* list = panel().findChild<QTreeWidget*>();
  EXPECT_EQ(list->topLevelItemCount(), 0);
  ASSERT_TRUE(addNote(document, {"second", 7 * kMs, {}}));
  ASSERT_TRUE(addNote(document, {"first", 0, BlockName{false, Rank(1), {SpanKind::Forward, Stage(1), Microbatch(0), Rank(1)}}}));
  ASSERT_EQ(list->topLevelItemCount(), 2);
  EXPECT_EQ(list->topLevelItem(0)->text(2), "first");
  EXPECT_EQ(list->topLevelItem(0)->text(1), "1F0, rank 1");
  EXPECT_TRUE(list->topLevelItem(0)->text(0).startsWith("1.3")) << "where its block is: after 1 ms, a transfer of 0.2 and a latency of 0.1";
  QTest::mouseClick(list->viewport(), Qt::LeftButton, {}, list->visualItemRect(list->topLevelItem(0)).center());
  EXPECT_EQ(selected(), at(1, SpanKind::Forward, 1, 0));
  list->topLevelItem(1)->setText(2, QStringLiteral("third"));  // as its editor does
  EXPECT_EQ(notes()[0].text, "third");
  EXPECT_EQ(document.undoText(), "Edit note");
  list->setCurrentItem(list->topLevelItem(1));
  for (auto* button : panel().findChildren<QPushButton*>()) {
    if (button->text() == "De&lete") QTest::mouseClick(button, Qt::LeftButton);
  }
  ASSERT_EQ(notes().size(), 1U);
  EXPECT_EQ(notes()[0].text, "first");
}

TEST_F(NotesShown, ThePanelsButtonsAreForTheChosenOneAndWhatIsAddedIsChosen) {
  const auto button = [&](const QString& text) {
    for (auto* one : panel().findChildren<QPushButton*>()) {
      if (one->text().remove(QLatin1Char('&')) == text) return one;
    }
    throw std::runtime_error("no such button");
  };
  auto* list = panel().findChild<QTreeWidget*>();
  ASSERT_TRUE(addNote(document, {"late", 7 * kMs, {}}));
  ASSERT_TRUE(addNote(document, {"early", 1 * kMs, {}}));
  ASSERT_TRUE(list->currentItem());
  EXPECT_EQ(list->currentItem()->text(2), "early") << "added last";
  EXPECT_TRUE(button("Edit")->isEnabled());
  list->setCurrentItem(nullptr);
  EXPECT_FALSE(button("Edit")->isEnabled());
  EXPECT_FALSE(button("Delete")->isEnabled());
  list->setCurrentItem(list->topLevelItem(1));
  EXPECT_TRUE(button("Delete")->isEnabled());
  button("Delete")->click();
  ASSERT_EQ(notes().size(), 1U);
  EXPECT_EQ(notes()[0].text, "early");
}

TEST_F(NotesShown, WhatIsBeingWrittenInThePanelStaysWhileARunIsMeasured) {
  ASSERT_TRUE(addNote(document, {"slow", 7 * kMs, {}}));
  auto* list = panel().findChild<QTreeWidget*>();
  list->setCurrentItem(list->topLevelItem(0));
  list->editItem(list->topLevelItem(0), 2);
  auto* editor = list->findChild<QLineEdit*>();
  ASSERT_TRUE(editor);
  editor->selectAll();
  QTest::keyClicks(editor, QStringLiteral("slow lin"));
  for (int step = 0; step < 3; ++step) {
    measure([&](CostTable& costs) { costs.stages[0].forward += Ns(step); });
    waitForNextTurn();
  }
  ASSERT_EQ(list->findChild<QLineEdit*>(), editor);
  QTest::keyClicks(editor, QStringLiteral("k"));
  QTest::keyClick(editor, Qt::Key_Return);
  ASSERT_TRUE(QTest::qWaitFor([&] { return notes()[0].text != "slow"; }));
  EXPECT_EQ(notes()[0].text, "slow link");
  ASSERT_TRUE(QTest::qWaitFor([&] { return list->findChild<QLineEdit*>() == nullptr; })) << "its editor is gone";
  ASSERT_TRUE(addNote(document, {"another", 8 * kMs, {}}));
  EXPECT_EQ(list->topLevelItemCount(), 2);
}

TEST_F(NotesShown, WhatIsWrittenBesideARunIsShownWithThatRunAlone) {
  const RunName run{RunId(7), "2024-11-22T14:03:00Z"};
  const auto texts = [this] {
    QStringList shown;
    for (const NoteFlag& flag : widget.scene().notes) shown << flag.text;
    return shown;
  };
  showRun(run);
  widget.select(at(1, SpanKind::Backward, 1, 2, Source::Measured));
  key(Qt::Key_N);
  write(QStringLiteral("slow"));
  widget.select(at(2, SpanKind::Forward, 2, 0));
  key(Qt::Key_N);
  write(QStringLiteral("planned so"));
  widget.clearSelection();
  moveTo({xOf(5 * kMs), yOf(1)});
  key(Qt::Key_F2, Qt::ControlModifier);
  ASSERT_EQ(notes().size(), 3U);
  EXPECT_EQ(notes()[0].run, run);
  EXPECT_EQ(notes()[1].run, std::nullopt) << "at a block of the prediction: it is about the plan";
  EXPECT_EQ(notes()[2].run, run);
  EXPECT_EQ(texts(), (QStringList{"slow", "planned so", ""}));
  // Another run, one of that number in a store that was replaced, and none.
  for (const RunName& other : {RunName{RunId(8), run.startedAt}, RunName{RunId(7), "2025-11-22T14:03:00Z"}}) {
    showRun(other);
    EXPECT_EQ(texts(), QStringList{"planned so"});
    widget.clearSelection();
    key(Qt::Key_F2);
    EXPECT_EQ(selected(), at(2, SpanKind::Forward, 2, 0));
    key(Qt::Key_F2);
    EXPECT_EQ(selected(), at(2, SpanKind::Forward, 2, 0)) << "the only one here";
    widget.select(at(1, SpanKind::Backward, 1, 2, Source::Measured));
    key(Qt::Key_Delete);
    EXPECT_EQ(notes().size(), 3U) << "the block's note is about another run";
  }
  document.setMeasured(nullptr);
  EXPECT_EQ(texts(), QStringList{"planned so"});
  showRun(run);
  EXPECT_EQ(texts(), (QStringList{"slow", "planned so", ""}));
}

TEST_F(NotesShown, WhatIsWrittenBesideATraceOrAPinnedPlanIsShownWithThatAlone) {
  const auto texts = [this] {
    QStringList shown;
    for (const NoteFlag& flag : widget.scene().notes) shown << flag.text;
    return shown;
  };
  const auto showStep = [this](const QString& pinned, const std::vector<std::string>& trace) {
    measure([](CostTable& costs) { costs.stages[1].backward *= 2; });
    auto step = std::make_shared<Measured>(*document.measured());
    step->pinnedAs = pinned.left(1);
    step->title = pinned;
    step->from.paths = trace;
    document.setMeasured(step);
  };
  const auto note = [this](const QString& text) {
    widget.select(at(1, SpanKind::Backward, 1, 2, Source::Measured));
    key(Qt::Key_N);
    write(text);
  };
  const QString planA = QStringLiteral("A: zb-h1, 4 ranks");
  showStep({}, {"/t/a.json"});
  note(QStringLiteral("of the trace"));
  showStep(planA, {});
  EXPECT_EQ(texts(), QStringList());
  note(QStringLiteral("of the plan"));
  EXPECT_EQ(texts(), QStringList{"of the plan"});
  for (const QString& other : {QStringLiteral("A: gpipe, 4 ranks"), QStringLiteral("B: zb-h1, 4 ranks")}) {
    showStep(other, {});
    EXPECT_EQ(texts(), QStringList());
  }
  showStep({}, {"/t/a.json", "/t/b.json"});
  EXPECT_EQ(texts(), QStringList()) << "another trace";
  auto* list = panel().findChild<QTreeWidget*>();
  EXPECT_EQ(list->topLevelItem(0)->text(1), "1B2, rank 1, a.json");
  EXPECT_EQ(list->topLevelItem(1)->text(1), "1B2, rank 1, plan " + planA);
  QSignalSpy refused(&widget, &TimelineWidget::editRefused);
  widget.goToNote(0);
  widget.goToNote(1);
  ASSERT_EQ(refused.count(), 2);
  EXPECT_EQ(refused[0][0].toString(), "This note is about a.json; open that trace.");
  EXPECT_EQ(refused[1][0].toString(), "This note is about plan " + planA + "; choose it under Pinned plans.");
  showStep({}, {"/t/a.json"});
  EXPECT_EQ(texts(), QStringList{"of the trace"});
  showStep(planA, {});
  EXPECT_EQ(texts(), QStringList{"of the plan"});
}

TEST_F(NotesShown, ThePanelSaysWhichRunANoteIsAboutAndWhereToChooseIt) {
  const RunName run{RunId(7), "2024-11-22T14:03:00Z"};
  Note note{"slow", 7 * kMs, BlockName{true, Rank(1), {SpanKind::Forward, Stage(1), Microbatch(0), Rank(1)}}};
  note.run = run;
  ASSERT_TRUE(addNote(document, note));
  auto* list = panel().findChild<QTreeWidget*>();
  const auto place = [&] { return list->topLevelItem(0)->text(1); };
  const auto colour = [&] { return list->topLevelItem(0)->foreground(2).color(); };
  EXPECT_EQ(place(), "1F0, rank 1, " + titleOf(run));
  EXPECT_EQ(colour(), currentTheme().faintText);
  EXPECT_TRUE(widget.scene().notes.empty());
  QSignalSpy refused(&widget, &TimelineWidget::editRefused);
  QTest::mouseClick(list->viewport(), Qt::LeftButton, {}, list->visualItemRect(list->topLevelItem(0)).center());
  ASSERT_EQ(refused.count(), 1);
  EXPECT_EQ(refused[0][0].toString(), "This note is about " + titleOf(run) + "; choose that run under Runs.");
  showRun(run);
  EXPECT_EQ(place(), "1F0, rank 1, " + titleOf(run));
  EXPECT_NE(colour(), currentTheme().faintText);
  widget.goToNote(0);
  EXPECT_EQ(selected(), at(1, SpanKind::Forward, 1, 0, Source::Measured));
}

TEST_F(NotesShown, ABookmarkAtABlockWithANoteIsRefusedInWords) {
  QSignalSpy refused(&widget, &TimelineWidget::editRefused);
  click(middleOf(at(2, SpanKind::Backward, 2, 3)));
  key(Qt::Key_N);
  write(QStringLiteral("slow"));
  key(Qt::Key_F2, Qt::ControlModifier);
  EXPECT_EQ(notes().size(), 1U);
  ASSERT_EQ(refused.count(), 1);
  EXPECT_TRUE(refused[0][0].toString().startsWith("The block has a note already")) << refused[0][0].toString().toStdString();
}

TEST(Notes, AreSavedInAProject) {
  Project project;
  project.design.models = {"a.pt2"};
  project.design.notes = {{"a \"quoted\" text, µ", 5, {}},
                          {"", 7, BlockName{true, Rank(3), {SpanKind::SendBackward, Stage(3), Microbatch(1), Rank(2)}}},
                          {"of a run", 9, {}, RunName{RunId(7), "2024-11-22T14:03:00Z"}},
                          {"of a trace", 9, {}, {}, {"/t/a.json", "/t/b.json"}},
                          {"of a pinned plan", 9, {}, {}, {}, "A: zb-h1, 4 ranks"}};
  const std::string text = toJson(project);
  EXPECT_EQ(parseProject(text, "p").design.notes, project.design.notes);
  EXPECT_EQ(toJson(parseProject(text, "p")), text);
  project.design.notes.clear();
  EXPECT_EQ(toJson(project).find("notes"), std::string::npos) << "as older versions wrote it";
}

TEST(Notes, OfAProjectThatAreWrongAreRefused) {
  Project project;
  project.design.notes = {{"x", 5, BlockName{false, Rank(3), {SpanKind::Forward, Stage(3), Microbatch(1), Rank(3)}}}};
  const std::string good = toJson(project);
  const auto with = [&](const std::string& old, const std::string& wrong) {
    std::string text = good;
    const auto at = text.find(old);
    EXPECT_NE(at, std::string::npos) << old;
    return text.replace(at, old.size(), wrong);
  };
  EXPECT_NO_THROW((void)parseProject(good, "p"));
  EXPECT_THROW((void)parseProject(with("\"kind\": \"F\"", "\"kind\": \"Q\""), "p"), UsageError);
  EXPECT_THROW((void)parseProject(with("\"time_ns\": 5", "\"time_ns\": -5"), "p"), UsageError);
  EXPECT_THROW((void)parseProject(with("\"rank\": 3", "\"rank\": 99999999"), "p"), UsageError);
  EXPECT_EQ(noteText(QStringLiteral("two\nlines")), "two lines");
  EXPECT_LE(noteText(QString(100'000, QChar(0x4E2D))).size(), kLongestNote);
}

}  // namespace
}  // namespace pw::gui
