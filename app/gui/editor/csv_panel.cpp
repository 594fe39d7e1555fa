#include "app/gui/editor/csv_panel.h"

#include <QFontDatabase>
#include <QLabel>
#include <QPointer>
#include <QScrollBar>
#include <QTextBlock>
#include <QTimer>
#include <QVBoxLayout>
#include <optional>
#include <utility>

#include "app/gui/common/body.h"
#include "app/gui/common/format.h"
#include "app/gui/common/theme.h"
#include "app/gui/document/document.h"
#include "app/gui/document/drawn.h"
#include "app/gui/editor/csv_cells.h"
#include "app/gui/editor/rank_text.h"
#include "app/gui/timeline/facts/actions.h"
#include "app/gui/timeline/hand_edit.h"
#include "app/gui/timeline/widget.h"
#include "schedules/check.h"
#include "schedules/csv.h"
#include "schedules/error.h"
#include "schedules/lower.h"

namespace pw::gui {
namespace {

constexpr const char* kSource = "The text";    ///< in errors of the parser
constexpr int kPauseMs = 400;                  ///< without a key: what was typed is meant
constexpr std::size_t kMostActions = 200'000;  ///< a text editor is no longer a view of more

std::size_t actionsIn(const Schedule& schedule) {
  std::size_t count = 0;
  for (const auto& row : schedule.rows) count += row.size();
  return count;
}

/// Without the name of what was read, which is in sight, and with an end.
QString sentenceOf(const Error& error) {
  QString text = QString::fromUtf8(error.what());
  if (text.startsWith(QLatin1String(kSource))) text.remove(0, static_cast<qsizetype>(std::char_traits<char>::length(kSource)) + 2);
  text = capitalised(text);
  return text.endsWith(QLatin1Char('.')) ? text : text + QLatin1Char('.');
}

}  // namespace

struct CsvPanel::Private {
  struct Wrong {
    QString sentence;
    std::optional<CsvPlace> where;
  };

  CsvPanel& panel;
  Document& document;
  RankText* text = nullptr;
  QPointer<TimelineWidget> timeline;
  QLabel* label = nullptr;
  QTimer typing;
  QString problem;
  QString shown;                                                  ///< the document's schedule, as last shown
  std::pair<std::shared_ptr<const ModelGraph>, QString> shownOf;  ///< what is open: its unfinished text goes with it
  bool isTaking = false;                                          ///< the document changes because of the text
  bool isShowing = false;                                         ///< the text changes, or its cursor, because of the document
  std::optional<CsvPlace> wrongAt;
  std::optional<Action> selected;  ///< in the timeline

  Private(CsvPanel& p, Document& d) : panel(p), document(d) {}
  void build();
  void show();
  void take();
  void revert();
  void say(const Wrong& wrong);
  void mark();
  void choose();
  void followSelection();
  void showSelected();
  [[nodiscard]] QString unfinished();
  [[nodiscard]] std::optional<CsvPlace> placeOf(const Action& action) const;
  [[nodiscard]] QTextCursor cursorOf(const CsvPlace& place) const;
  [[nodiscard]] std::optional<Wrong> wrongOf(Schedule& parsed, const std::string& csv) const;
};

CsvPanel::CsvPanel(Document& document, QWidget* parent) : QWidget(parent), d(std::make_unique<Private>(*this, document)) {
  setAccessibleName(tr("Schedule as CSV"));
  d->build();
}

CsvPanel::~CsvPanel() = default;

void CsvPanel::follow(TimelineWidget& timeline) {
  d->timeline = &timeline;
  timeline.hand().setObstacle([this] { return d->unfinished(); });
  connect(&timeline, &TimelineWidget::selectionChanged, this, [this] { d->followSelection(); });
}

QString CsvPanel::problem() const { return d->problem; }

void CsvPanel::showEvent(QShowEvent* event) {
  QWidget::showEvent(event);
  d->show();
  d->showSelected();
}

void CsvPanel::Private::build() {
  text = new RankText;
  text->setAccessibleName(CsvPanel::tr("Schedule as CSV, one row per rank"));
  text->setLineWrapMode(QPlainTextEdit::NoWrap);
  text->setFont(QFontDatabase::systemFont(QFontDatabase::FixedFont));
  text->setTabChangesFocus(true);
  text->setUndoRedoEnabled(false);  // undo is the document's
  label = new QLabel;
  label->setWordWrap(true);
  label->setTextInteractionFlags(Qt::TextSelectableByMouse);
  label->setAccessibleName(CsvPanel::tr("What is wrong with the schedule"));
  auto* column = new QVBoxLayout(&panel);
  column->setContentsMargins(6, 4, 6, 6);
  column->addWidget(text, 1);
  column->addWidget(label);
  takeHeightLeft(*text);
  typing.setSingleShot(true);
  typing.setInterval(kPauseMs);
  QObject::connect(text, &QPlainTextEdit::textChanged, &panel, [this] {
    if (isShowing) return;
    typing.start();
    text->setRevert([this] { revert(); });
  });
  QObject::connect(text, &QPlainTextEdit::cursorPositionChanged, &panel, [this] { choose(); });
  QObject::connect(&typing, &QTimer::timeout, &panel, [this] { take(); });
  QObject::connect(&document, &Document::designChanged, &panel, [this] { show(); });
  QObject::connect(&document, &Document::predictionChanged, &panel, [this] { show(); });
  QObject::connect(&document, &Document::modelChanged, &panel, [this] { show(); });
  show();
}

/// The document's schedule, unless the text is being typed.
void CsvPanel::Private::show() {
  if (!panel.isVisible() || isTaking || typing.isActive() || document.isDragging()) return;
  QString csv;
  const auto editable = editableSchedule(document);
  const auto* refusal = std::get_if<std::string>(&editable);
  const auto* schedule = std::get_if<Schedule>(&editable);
  const bool isOpen = document.graph() || document.design().customCosts,
             isLarge = schedule != nullptr && actionsIn(*schedule) > kMostActions;
  text->setPlaceholderText(isOpen && refusal != nullptr ? capitalised(QString::fromStdString(*refusal))
                           : isOpen && isLarge
                               ? CsvPanel::tr("This schedule has more than %L1 actions, too many for a text; see the timeline, or write a "
                                              "file with File ▸ Export ▸ Export schedule as CSV.")
                                     .arg(kMostActions)
                               : CsvPanel::tr("Open a model or a schedule to see the order of its actions here."));
  if (schedule != nullptr && !isLarge) csv = QString::fromStdString(toCsv(*schedule)).remove(QLatin1Char('\r'));
  while (csv.endsWith(QLatin1Char('\n'))) csv.chop(1);
  const std::pair of(document.graph(), document.title());
  if (std::exchange(shownOf, of) == of && !problem.isEmpty()) {  // what was typed and is not right yet stays
    const QString other = CsvPanel::tr("The plan has another schedule by now; Ctrl+Z in this text shows it.");
    return label->setText(csv == shown ? problem : problem + QLatin1Char(' ') + other);
  }
  shown = csv;
  text->setReadOnly(csv.isEmpty());
  if (csv != text->toPlainText()) {
    isShowing = true;
    const QPoint seen(text->horizontalScrollBar()->value(), text->verticalScrollBar()->value());
    text->setPlainText(csv);
    text->horizontalScrollBar()->setValue(seen.x());
    text->verticalScrollBar()->setValue(seen.y());
    isShowing = false;
    text->setRevert({});
  }
  say({});
}

std::optional<CsvPanel::Private::Wrong> CsvPanel::Private::wrongOf(Schedule& parsed, const std::string& csv) const {
  try {
    parsed = parseCsv(csv, document.design().request.schedule, kSource);
  } catch (const CsvError& e) {
    return Wrong{sentenceOf(e), CsvPlace{static_cast<int>(e.row()), static_cast<int>(e.cell())}};
  } catch (const Error& e) {
    return Wrong{sentenceOf(e), {}};
  }
  if (isLowered(parsed)) return Wrong{CsvPanel::tr("Messages are added automatically; leave the SEND and RECV cells out."), {}};
  const auto problems = check(parsed);
  if (problems.empty()) return std::nullopt;
  const Problem& first = problems.front();
  Wrong wrong{CsvPanel::tr("Rank %1: %2.").arg(first.rank.value).arg(QString::fromStdString(first.message)), {}};
  if (first.rank.index() >= parsed.rows.size()) return wrong;
  wrong.where = CsvPlace{first.rank.value, {}};
  if (first.position >= 0) {
    wrong.where->cell = cellOf(parsed.rows[first.rank.index()], first.position);
    return wrong;
  }
  // What is missing may be so only because of a number that is too large.
  const auto before = editableSchedule(document);
  const auto* schedule = std::get_if<Schedule>(&before);
  const auto added = schedule != nullptr ? beyond(parsed, schedule->microbatches, schedule->placement.stages()) : std::nullopt;
  if (!added) return wrong;
  wrong.where = added->first;
  const bool isMicrobatch = added->second.microbatch.value >= schedule->microbatches;
  wrong.sentence = (isMicrobatch ? CsvPanel::tr("Rank %1: %2 is of a microbatch that the plan does not have (0 to %3). Change it, or add "
                                                "the rest: %4.")
                                 : CsvPanel::tr("Rank %1: %2 is of a stage that the plan does not have (0 to %3). Change it, or add the "
                                                "rest: %4."))
                       .arg(added->first.row)
                       .arg(actionText(added->second))
                       .arg(isMicrobatch ? schedule->microbatches - 1 : static_cast<int>(schedule->placement.stages()) - 1)
                       .arg(QString::fromStdString(first.message));
  return wrong;
}

/// Back to the document's schedule.
void CsvPanel::Private::revert() {
  typing.stop();
  problem.clear();
  show();
}

/// What was typed becomes the schedule, if it can be run.
void CsvPanel::Private::take() {
  Schedule parsed;
  if (const auto wrong = wrongOf(parsed, text->toPlainText().toStdString())) {
    say(*wrong);
    return show();  // says it where the plan has another schedule
  }
  say({});
  const auto editable = editableSchedule(document);
  if (const auto* refusal = std::get_if<std::string>(&editable)) return say({capitalised(QString::fromStdString(*refusal)), {}});
  if (parsed.rows == std::get<Schedule>(editable).rows) return text->setRevert({});
  try {
    isTaking = true;
    setDrawn(document, CsvPanel::tr("Edit the schedule as text"), std::move(parsed));
    text->setRevert({});  // else Ctrl+Z takes back what is typed
  } catch (const Error& e) {
    say({QString::fromUtf8(e.what()), {}});
  }
  isTaking = false;
}

/// Why nothing else may edit the schedule now, as what is typed would be lost; empty: nothing is typed that is not taken.
QString CsvPanel::Private::unfinished() {
  if (typing.isActive()) {
    typing.stop();
    take();
  }
  return problem.isEmpty() ? QString() : CsvPanel::tr("The text in Schedule is unfinished; complete it, or press Ctrl+Z in it, first.");
}

void CsvPanel::Private::say(const Wrong& wrong) {
  problem = wrong.sentence;
  label->setText(wrong.sentence.isEmpty() ? CsvPanel::tr("F forward, B backward, I and W its parts for inputs and weights: stage, letter, "
                                                         "microbatch. An empty cell is a pause.")
                                          : wrong.sentence);
  QPalette colours = panel.palette();
  if (!problem.isEmpty()) colours.setColor(QPalette::WindowText, currentTheme().error);
  label->setPalette(colours);
  wrongAt = wrong.where;
  mark();
}

/// The part of the text without its comma.
QTextCursor CsvPanel::Private::cursorOf(const CsvPlace& place) const {
  const QTextBlock line = text->document()->findBlockByNumber(place.row);
  QTextCursor cursor;
  if (!line.isValid()) return cursor;
  const QString all = line.text();
  qsizetype from = 0, to = all.size();
  if (place.cell) {
    for (int cell = 0; cell < *place.cell; ++cell) {
      const auto comma = all.indexOf(QLatin1Char(','), from);
      if (comma < 0) break;
      from = comma + 1;
    }
    if (const auto comma = all.indexOf(QLatin1Char(','), from); comma >= 0) to = comma;
  }
  cursor = QTextCursor(line);
  cursor.setPosition(line.position() + static_cast<int>(from));
  cursor.setPosition(line.position() + static_cast<int>(to), QTextCursor::KeepAnchor);
  return cursor;
}

/// What is wrong, and what is selected in the timeline.
void CsvPanel::Private::mark() {
  QList<QTextEdit::ExtraSelection> marks;
  const auto add = [&](const QTextCursor& cursor, QColor colour, bool isWrong) {
    if (cursor.isNull()) return;
    QTextEdit::ExtraSelection mark;
    mark.cursor = cursor;
    if (isWrong) {
      mark.format.setUnderlineStyle(QTextCharFormat::WaveUnderline);
      mark.format.setUnderlineColor(colour);
    }
    colour.setAlpha(isWrong ? 50 : 90);
    mark.format.setBackground(colour);
    marks << mark;
  };
  if (wrongAt) add(cursorOf(*wrongAt), currentTheme().error, true);
  const auto at = problem.isEmpty() && selected ? placeOf(*selected) : std::nullopt;
  if (at) add(cursorOf(*at), currentTheme().focus, false);
  text->setExtraSelections(marks);
}

/// Where an action is in the text; nothing while the text is not the document's schedule.
std::optional<CsvPlace> CsvPanel::Private::placeOf(const Action& action) const {
  if (typing.isActive() || !problem.isEmpty() || text->isReadOnly()) return std::nullopt;
  const auto editable = editableSchedule(document);
  const auto* schedule = std::get_if<Schedule>(&editable);
  if (schedule == nullptr) return std::nullopt;
  for (std::size_t r = 0; r < schedule->rows.size(); ++r) {
    const auto& row = schedule->rows[r];
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (withoutOverlap(row[i]) == action) return CsvPlace{static_cast<int>(r), cellOf(row, static_cast<int>(i))};
    }
  }
  return std::nullopt;
}

/// The block that is selected now is marked and scrolled to; a cursor that somebody has set stays.
void CsvPanel::Private::followSelection() {
  const Scene& scene = timeline->scene();
  const bool isOwn = scene.selected && scene.selected->source == Source::Predicted && scene.predicted;
  const auto now = isOwn ? actionOf(*scene.predicted, scene.selected->span) : std::nullopt;
  if (std::exchange(selected, now) != now) showSelected();
}

void CsvPanel::Private::showSelected() {
  if (!panel.isVisible()) return;
  mark();
  const auto at = selected && !text->hasFocus() ? placeOf(*selected) : std::nullopt;
  if (!at) return;
  QTextCursor cursor = cursorOf(*at);
  if (cursor.isNull()) return;
  cursor.setPosition(cursor.selectionStart());
  isShowing = true;
  text->setTextCursor(cursor);
  isShowing = false;
}

/// Selects the block of the cell with the cursor, where somebody moves it through the document's schedule; none for a pause.
void CsvPanel::Private::choose() {
  const auto prediction = document.prediction();
  if (isShowing || timeline == nullptr || !text->hasFocus() || typing.isActive() || !problem.isEmpty() || !prediction ||
      document.isPredicting())
    return;
  const auto editable = editableSchedule(document);
  const auto* schedule = std::get_if<Schedule>(&editable);
  const QTextCursor cursor = text->textCursor();
  const auto row = static_cast<std::size_t>(cursor.blockNumber());
  if (cursor.hasSelection() || schedule == nullptr || row >= schedule->rows.size()) return;
  const QString before = cursor.block().text().left(cursor.positionInBlock());
  const auto start = before.lastIndexOf(QLatin1Char(',')) + 1;
  const int part = before.indexOf(QLatin1Char(';'), start) >= 0 ? 1 : 0;
  const auto action = actionIn(schedule->rows[row], static_cast<int>(before.count(QLatin1Char(','))), part);
  const auto block = action ? blockOf(prediction->timeline, prediction->rows->placement, *action) : std::nullopt;
  if (block) return timeline->select({Source::Predicted, *block});
  timeline->hand().clearSelection();  // a pause: no edit is of the block before
  timeline->clearSelection();
}

}  // namespace pw::gui
