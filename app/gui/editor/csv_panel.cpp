#include "app/gui/editor/csv_panel.h"

#include <QFontDatabase>
#include <QLabel>
#include <QPlainTextEdit>
#include <QSignalBlocker>
#include <QTextBlock>
#include <QTimer>
#include <QVBoxLayout>
#include <optional>
#include <utility>

#include "app/gui/common/theme.h"
#include "app/gui/document/document.h"
#include "app/gui/document/drawn.h"
#include "schedules/check.h"
#include "schedules/csv.h"
#include "schedules/error.h"
#include "schedules/lower.h"

namespace pw::gui {
namespace {

constexpr int kPauseMs = 400;                  ///< without a key: what was typed is meant
constexpr std::size_t kMostActions = 200'000;  ///< a text editor is no longer a view of more

std::size_t actionsIn(const Schedule& schedule) {
  std::size_t count = 0;
  for (const auto& row : schedule.rows) count += row.size();
  return count;
}

/// The cell of a row that an action is in: those of an overlapped pair share one.
int cellOf(const std::vector<Action>& row, int position) {
  int cell = 0;
  for (int i = 0; i < position && static_cast<std::size_t>(i) < row.size(); ++i)
    cell += row[static_cast<std::size_t>(i)].overlapsNext ? 0 : 1;
  return cell;
}

}  // namespace

struct CsvPanel::Private {
  struct Wrong {
    QString sentence;
    std::optional<std::pair<int, int>> cell;  ///< row and cell of the text
  };

  CsvPanel& panel;
  Document& document;
  QPlainTextEdit* text = nullptr;
  QLabel* label = nullptr;
  QTimer typing;
  QString problem;
  QString shown;          ///< the document's schedule, as last seen
  bool isTaking = false;  ///< the document changes because of the text

  Private(CsvPanel& p, Document& d) : panel(p), document(d) {}
  void build();
  void show();
  void take();
  void say(const Wrong& wrong);
  [[nodiscard]] std::optional<Wrong> wrongOf(Schedule& parsed, const std::string& csv) const;
};

CsvPanel::CsvPanel(Document& document, QWidget* parent) : QWidget(parent), d(std::make_unique<Private>(*this, document)) {
  setAccessibleName(tr("Schedule as CSV"));
  d->build();
}

CsvPanel::~CsvPanel() = default;

QString CsvPanel::problem() const { return d->problem; }

void CsvPanel::Private::build() {
  text = new QPlainTextEdit;
  text->setAccessibleName(CsvPanel::tr("Schedule as CSV, one row per rank"));
  text->setLineWrapMode(QPlainTextEdit::NoWrap);
  text->setFont(QFontDatabase::systemFont(QFontDatabase::FixedFont));
  text->setTabChangesFocus(true);
  text->setUndoRedoEnabled(false);  // undo is the document's
  text->setPlaceholderText(CsvPanel::tr("Open a model or a schedule to see the order of its actions here."));
  label = new QLabel;
  label->setWordWrap(true);
  label->setTextInteractionFlags(Qt::TextSelectableByMouse);
  label->setAccessibleName(CsvPanel::tr("What is wrong with the schedule"));
  auto* column = new QVBoxLayout(&panel);
  column->setContentsMargins(6, 4, 6, 6);
  column->addWidget(text, 1);
  column->addWidget(label);
  typing.setSingleShot(true);
  typing.setInterval(kPauseMs);
  QObject::connect(text, &QPlainTextEdit::textChanged, &panel, [this] { typing.start(); });
  QObject::connect(&typing, &QTimer::timeout, &panel, [this] { take(); });
  QObject::connect(&document, &Document::designChanged, &panel, [this] { show(); });
  QObject::connect(&document, &Document::predictionChanged, &panel, [this] { show(); });
  QObject::connect(&document, &Document::modelChanged, &panel, [this] { show(); });
  show();
}

/// The document's schedule, unless the text is being typed.
void CsvPanel::Private::show() {
  if (isTaking || typing.isActive() || document.isDragging()) return;
  QString csv;
  const auto editable = editableSchedule(document);
  if (const auto* schedule = std::get_if<Schedule>(&editable); schedule != nullptr && actionsIn(*schedule) <= kMostActions)
    csv = QString::fromStdString(toCsv(*schedule)).remove(QLatin1Char('\r'));
  text->setReadOnly(csv.isEmpty());
  while (csv.endsWith(QLatin1Char('\n'))) csv.chop(1);
  if (std::exchange(shown, csv) == csv && !problem.isEmpty()) return;  // what was typed and is not right yet stays
  if (csv != text->toPlainText()) {
    const QSignalBlocker quiet(text);
    text->setPlainText(csv);
  }
  say({});
}

std::optional<CsvPanel::Private::Wrong> CsvPanel::Private::wrongOf(Schedule& parsed, const std::string& csv) const {
  try {
    parsed = parseCsv(csv, document.design().request.schedule, "The text");
  } catch (const CsvError& e) {
    return Wrong{QString::fromUtf8(e.what()), std::pair(static_cast<int>(e.row()), static_cast<int>(e.cell()))};
  } catch (const Error& e) {
    return Wrong{QString::fromUtf8(e.what()), {}};
  }
  if (isLowered(parsed)) return Wrong{CsvPanel::tr("Messages are added to a schedule by itself; leave the SEND and RECV cells out."), {}};
  const auto problems = check(parsed);
  if (problems.empty()) return std::nullopt;
  const Problem& first = problems.front();
  Wrong wrong{CsvPanel::tr("Rank %1: %2.").arg(first.rank.value).arg(QString::fromStdString(first.message)), {}};
  if (first.position >= 0 && first.rank.index() < parsed.rows.size())
    wrong.cell = std::pair(first.rank.value, cellOf(parsed.rows[first.rank.index()], first.position));
  return wrong;
}

/// What was typed becomes the schedule, if it can be run.
void CsvPanel::Private::take() {
  Schedule parsed;
  if (const auto wrong = wrongOf(parsed, text->toPlainText().toStdString())) return say(*wrong);
  say({});
  const auto editable = editableSchedule(document);
  if (const auto* refusal = std::get_if<std::string>(&editable)) return say({QString::fromStdString(*refusal), {}});
  if (parsed.rows == std::get<Schedule>(editable).rows) return;
  try {
    isTaking = true;
    setDrawn(document, CsvPanel::tr("Edit the schedule as text"), std::move(parsed));
  } catch (const Error& e) {
    say({QString::fromUtf8(e.what()), {}});
  }
  isTaking = false;
}

void CsvPanel::Private::say(const Wrong& wrong) {
  problem = wrong.sentence;
  label->setText(wrong.sentence.isEmpty() ? CsvPanel::tr("F forward, B backward, I and W its parts for inputs and weights: stage, letter, "
                                                         "microbatch. An empty cell is a pause.")
                                          : wrong.sentence);
  QPalette colours = panel.palette();
  if (!problem.isEmpty()) colours.setColor(QPalette::WindowText, currentTheme().error);
  label->setPalette(colours);
  QList<QTextEdit::ExtraSelection> marks;
  if (wrong.cell) {
    const QTextBlock line = text->document()->findBlockByNumber(wrong.cell->first);
    if (line.isValid()) {
      const QString all = line.text();
      int from = 0;
      for (int cell = 0; cell < wrong.cell->second; ++cell) {
        const auto comma = all.indexOf(QLatin1Char(','), from);
        if (comma < 0) break;
        from = static_cast<int>(comma) + 1;
      }
      auto to = static_cast<int>(all.indexOf(QLatin1Char(','), from));
      if (to < 0) to = static_cast<int>(all.size());
      QTextEdit::ExtraSelection mark;
      mark.cursor = QTextCursor(line);
      mark.cursor.setPosition(line.position() + from);
      mark.cursor.setPosition(line.position() + to, QTextCursor::KeepAnchor);
      mark.format.setUnderlineStyle(QTextCharFormat::WaveUnderline);
      mark.format.setUnderlineColor(currentTheme().error);
      QColor fill = currentTheme().error;
      fill.setAlpha(50);
      mark.format.setBackground(fill);
      marks << mark;
    }
  }
  text->setExtraSelections(marks);
}

}  // namespace pw::gui
