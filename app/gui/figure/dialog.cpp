#include "app/gui/figure/dialog.h"

#include <QApplication>
#include <QClipboard>
#include <QFileDialog>
#include <QFileInfo>
#include <QGridLayout>
#include <QHBoxLayout>
#include <QLabel>
#include <QPushButton>
#include <QScrollArea>
#include <QScrollBar>
#include <QSettings>
#include <algorithm>
#include <utility>

#include "app/gui/common/format.h"
#include "app/gui/figure/files.h"
#include "app/gui/figure/form.h"
#include "app/gui/figure/preview.h"
#include "schedules/error.h"

namespace pw::gui {
namespace {

constexpr int kPauseMs = 120;
const QString kGroup = QStringLiteral("figure");

/// Settings of one document, which another would not fit.
bool isOfDocument(std::string_view name) { return name == "ranks" || name == "time" || name == "title"; }

}  // namespace

FigureDialog::FigureDialog(FigureSource source, bool remembers, QWidget* parent)
    : QDialog(parent),
      source_(std::move(source)),
      remembers_(remembers),
      form_(new FigureForm(source_)),
      preview_(new FigurePreview),
      state_(new QLabel) {
  setWindowTitle(tr("Figure"));
  setAccessibleName(tr("Figure"));
  auto* grid = new QGridLayout(this);
  auto* scroll = new QScrollArea;
  scroll->setWidget(form_);
  scroll->setWidgetResizable(true);
  scroll->setFrameShape(QFrame::NoFrame);
  scroll->setHorizontalScrollBarPolicy(Qt::ScrollBarAlwaysOff);
  scroll->setFocusPolicy(Qt::NoFocus);
  scroll->setFixedWidth(form_->sizeHint().width() + scroll->verticalScrollBar()->sizeHint().width() + 6);
  grid->addWidget(scroll, 0, 0, 2, 1);
  grid->addWidget(preview_, 0, 1);
  state_->setWordWrap(true);
  state_->setAccessibleName(tr("State of the figure"));
  state_->setMinimumHeight(2 * fontMetrics().lineSpacing());
  state_->setAlignment(Qt::AlignTop);
  grid->addWidget(state_, 1, 1);
  grid->setColumnStretch(1, 1);
  grid->setRowStretch(0, 1);
  buildButtons();
  pause_.setSingleShot(true);
  pause_.setInterval(kPauseMs);
  connect(&pause_, &QTimer::timeout, this, &FigureDialog::draw);
  restore();
  connect(form_, &FigureForm::changed, this, [this] {
    useSteps();
    pause_.start();
  });
  draw();
  const QSize most = parent != nullptr ? parent->window()->size() - QSize(40, 40) : QSize(960, 640);
  resize(QSize(1100, 680).boundedTo(most).expandedTo({640, 400}));
}

void FigureDialog::buildButtons() {
  auto* row = new QHBoxLayout;
  auto* usual = new QPushButton(tr("Default &values"));
  save_ = new QPushButton(tr("&Save…"));
  copy_ = new QPushButton(tr("Copy comm&and line"));
  auto* close = new QPushButton(tr("&Close"));
  save_->setDefault(true);
  copy_->setToolTip(tr("The call of pipewright export that makes the same figure; for PDF and PNG, that of pipewright-gui"));
  row->addWidget(usual);
  row->addStretch(1);
  for (QPushButton* button : {copy_, save_, close}) row->addWidget(button);
  for (QPushButton* button : {usual, copy_, close}) button->setAutoDefault(false);
  static_cast<QGridLayout*>(layout())->addLayout(row, 2, 0, 1, 2);
  connect(usual, &QPushButton::clicked, this, [this] {
    FigureStyle style;
    style.title = usualTitle_.toStdString();
    form_->setStyle(style);
  });
  connect(save_, &QPushButton::clicked, this, &FigureDialog::chooseAndSave);
  connect(copy_, &QPushButton::clicked, this, &FigureDialog::copyCommandLine);
  connect(close, &QPushButton::clicked, this, &QDialog::reject);
}

QString FigureDialog::state() const { return state_->text(); }

/// A title that nobody wrote follows what is drawn.
void FigureDialog::useSteps() {
  const QString title = usualTitle(source_, form_->steps());
  if (title == usualTitle_) return;
  const QString before = std::exchange(usualTitle_, title);
  try {
    FigureStyle style = form_->style();
    if (style.title != before.toStdString()) return;
    style.title = title.toStdString();
    form_->setStyle(style);
  } catch (const UsageError&) {
    // the preview says what is wrong
  }
}

void FigureDialog::draw() {
  pause_.stop();
  bool usable = true;
  try {
    Figure figure = figureOf(source_, form_->steps(), form_->style());
    QString words = tr("%1 × %2 mm").arg(figure.width, 0, 'f', 1).arg(figure.height, 0, 'f', 1);
    words += figure.blocks.size() == 1 ? tr(", 1 block") : tr(", %1 blocks").arg(figure.blocks.size());
    if (figure.mergedSpans > 0) words += tr("; %1 spans are merged, too narrow or too many to be drawn one by one").arg(figure.mergedSpans);
    state_->setText(words);
    preview_->setFigure(std::move(figure));
  } catch (const Error& e) {
    usable = false;
    QString sentence = QString::fromUtf8(e.what());
    sentence[0] = sentence[0].toUpper();
    state_->setText(sentence);
    preview_->explain(sentence);
  }
  save_->setEnabled(usable);
  copy_->setEnabled(usable && !commandLine().isEmpty());
}

bool FigureDialog::save(const QString& path) {
  draw();
  try {
    writeFigure(figureOf(source_, form_->steps(), form_->style(), frameFor(path)), path, form_->dpi());
  } catch (const Error& e) {
    state_->setText(QString::fromUtf8(e.what()));
    return false;
  }
  file_ = path;
  state_->setText(tr("Wrote %1").arg(path));
  return true;
}

void FigureDialog::chooseAndSave() {
  const QString suffix = file_.isEmpty() ? QStringLiteral("pdf") : QFileInfo(file_).suffix();
  const QString name = file_.isEmpty() ? QFileInfo(source_.model).completeBaseName() + QLatin1Char('.') + suffix : file_;
  const QString filters = tr("PDF (*.pdf);;SVG (*.svg);;TikZ (*.tex);;PNG (*.png)");
  QString chosen = filters.split(QStringLiteral(";;")).filter(QStringLiteral("*.") + suffix).value(0);
  QString path = QFileDialog::getSaveFileName(this, tr("Save figure"), name, filters, &chosen);
  if (path.isEmpty()) return;
  if (QFileInfo(path).suffix().isEmpty()) path += chosen.section(QLatin1String("*"), 1).chopped(1);
  save(path);
}

QString FigureDialog::commandLine() const {
  const QString file = file_.isEmpty() ? QStringLiteral("figure.svg") : QFileInfo(file_).fileName();
  try {
    return figureCall(source_, form_->steps(), form_->style(), file, form_->dpi());
  } catch (const UsageError&) {
    return {};  // a style that is half typed; the preview says what is wrong
  }
}

void FigureDialog::copyCommandLine() {
  QApplication::clipboard()->setText(commandLine());
  state_->setText(callNeedsPlan(source_, form_->steps())
                      ? tr("The command line is on the clipboard. It reads plan.json: File ▸ Save plan for the command line writes it.")
                      : tr("The command line is on the clipboard."));
}

void FigureDialog::restore() {
  FigureSteps steps = has(source_, FigureSteps::Both) ? FigureSteps::Both : usualSteps(source_);
  FigureStyle style;
  if (remembers_) {
    QSettings settings;
    settings.beginGroup(kGroup);
    if (const auto last = valueNamed<FigureSteps>(settings.value(QStringLiteral("steps")).toString().toStdString())) {
      if (has(source_, *last)) steps = *last;
    }
    form_->setDpi(settings.value(QStringLiteral("dpi"), kUsualDpi).toInt());
    for (const FigureSetting& setting : figureSettings()) {
      if (isOfDocument(setting.name) || !settings.contains(textOf(setting.name))) continue;
      try {
        setting.set(style, settings.value(textOf(setting.name)).toString().toStdString());
      } catch (const UsageError&) {
        // settings may hold anything; the default stays
      }
    }
    if (const QString suffix = settings.value(QStringLiteral("suffix")).toString(); isFigureFile(QStringLiteral("f.") + suffix))
      file_ = QFileInfo(source_.model).completeBaseName() + QLatin1Char('.') + suffix;
  }
  usualTitle_ = usualTitle(source_, steps);
  style.title = usualTitle_.toStdString();
  form_->setSteps(steps);
  form_->setStyle(style);
}

void FigureDialog::remember() const {
  FigureStyle style;
  try {
    style = form_->style();
  } catch (const UsageError&) {
    return;  // a style that is half typed is not worth remembering
  }
  QSettings settings;
  settings.beginGroup(kGroup);
  settings.setValue(QStringLiteral("steps"), textOf(nameOf(form_->steps())));
  settings.setValue(QStringLiteral("dpi"), form_->dpi());
  if (!file_.isEmpty()) settings.setValue(QStringLiteral("suffix"), QFileInfo(file_).suffix().toLower());
  for (const FigureSetting& setting : figureSettings()) {
    if (!isOfDocument(setting.name)) settings.setValue(textOf(setting.name), QString::fromStdString(setting.text(style)));
  }
}

void FigureDialog::done(int result) {
  if (remembers_) remember();
  QDialog::done(result);
}

void openFigureDialog(const Document& document, bool remembers, QWidget* parent) {
  auto* dialog = new FigureDialog(figureSource(document), remembers, parent);
  dialog->setAttribute(Qt::WA_DeleteOnClose);
  dialog->open();
}

}  // namespace pw::gui
