#include "app/gui/figure/form.h"

#include <QCheckBox>
#include <QComboBox>
#include <QDoubleSpinBox>
#include <QFormLayout>
#include <QGridLayout>
#include <QHBoxLayout>
#include <QLabel>
#include <QLineEdit>
#include <QSpinBox>
#include <algorithm>
#include <cmath>

#include "app/gui/common/format.h"
#include "app/gui/document/times.h"
#include "app/gui/figure/files.h"

namespace pw::gui {
namespace {

QDoubleSpinBox* numberField(double least, double most, double step, int decimals, const QString& suffix, const QString& name) {
  auto* field = new QDoubleSpinBox;
  field->setRange(least, most);
  field->setSingleStep(step);
  field->setDecimals(decimals);
  field->setSuffix(suffix);
  field->setAccessibleName(name);
  return field;
}

/// Two fields as one row.
QWidget* pair(QWidget* first, QWidget* second) {
  auto* row = new QWidget;
  auto* line = new QHBoxLayout(row);
  line->setContentsMargins({});
  line->addWidget(first, 1);
  line->addWidget(second);
  return row;
}

void addRow(QFormLayout& rows, const QString& label, QWidget* row, QWidget* buddy) {
  auto* words = new QLabel(label);
  words->setBuddy(buddy);
  rows.addRow(words, row);
}

}  // namespace

FigureForm::FigureForm(const FigureSource& source, QWidget* parent)
    : QWidget(parent),
      steps_(new QComboBox),
      width_(new QComboBox),
      font_(new QComboBox),
      labels_(new QComboBox),
      millimetres_(numberField(20, 1000, 1, 1, tr(" mm"), tr("Width in millimetres"))),
      size_(numberField(4, 72, 0.5, 1, tr(" pt"), tr("Font size in points"))),
      row_(numberField(0, 100, 0.5, 1, tr(" mm"), tr("Row height in millimetres"))),
      dpi_(new QSpinBox) {
  auto* rows = new QFormLayout(this);
  rows->setContentsMargins({});
  rows->setFieldGrowthPolicy(QFormLayout::AllNonFixedFieldsGrow);
  addStepsAndWidth(*rows, source);
  addText(*rows);
  addContents(*rows);
  addSwitches(*rows);
  dpi_->setRange(kLeastDpi, kMostDpi);
  dpi_->setValue(kUsualDpi);
  dpi_->setSuffix(tr(" dpi"));
  dpi_->setAccessibleName(tr("Resolution of PNG files"));
  addRow(*rows, tr("PNG res&olution"), dpi_, dpi_);
  setStyle({});
  showSteps();
}

void FigureForm::addStepsAndWidth(QFormLayout& rows, const FigureSource& source) {
  steps_->setAccessibleName(tr("Steps to draw"));
  const auto offer = [&](FigureSteps steps, const QString& words) {
    if (has(source, steps)) steps_->addItem(words, static_cast<int>(steps));
  };
  const QString pinned = pinnedName(source);
  offer(FigureSteps::Predicted, tr("Predicted step"));
  const bool isRehearsed = source.measured && timesOf(*source.measured) == TimesOf::Rehearsed;
  offer(FigureSteps::Measured, isRehearsed        ? tr("Rehearsed step")
                               : pinned.isEmpty() ? tr("Measured step")
                                                  : tr("Step of plan %1").arg(pinned));
  offer(FigureSteps::Both, isRehearsed        ? tr("Predicted over rehearsed")
                           : pinned.isEmpty() ? tr("Predicted over measured")
                                              : tr("This plan over plan %1").arg(pinned));
  connect(steps_, &QComboBox::currentIndexChanged, this, [this] {
    showSteps();
    emit changed();
  });
  addRow(rows, tr("Sho&w"), steps_, steps_);

  width_->setAccessibleName(tr("Usual widths"));
  for (const FigureWidth& preset : kFigureWidths) width_->addItem(textOf(preset.where), preset.width);
  width_->addItem(tr("Other width"), 0.0);
  connect(width_, &QComboBox::activated, this, [this](int index) {
    if (const double width = width_->itemData(index).toDouble(); width > 0) millimetres_->setValue(width);
  });
  connect(millimetres_, &QDoubleSpinBox::valueChanged, this, [this](double width) {
    const int preset = width_->findData(width);
    width_->setCurrentIndex(preset >= 0 ? preset : width_->count() - 1);
    emit changed();
  });
  addRow(rows, tr("Wi&dth"), pair(width_, millimetres_), width_);
}

void FigureForm::addText(QFormLayout& rows) {
  font_->setAccessibleName(tr("Font family"));
  font_->setEditable(true);
  font_->setToolTip(tr("sans-serif, serif, monospace, or the name of a font; TikZ uses the document's fonts of these three kinds"));
  for (const char* family : {"sans-serif", "serif", "monospace", "Helvetica", "Arial", "Times New Roman"})
    font_->addItem(QLatin1String(family));
  connect(font_, &QComboBox::currentTextChanged, this, &FigureForm::changed);
  connect(size_, &QDoubleSpinBox::valueChanged, this, &FigureForm::changed);
  addRow(rows, tr("&Font"), pair(font_, size_), font_);
  row_->setSpecialValueText(tr("automatic"));
  connect(row_, &QDoubleSpinBox::valueChanged, this, &FigureForm::changed);
  addRow(rows, tr("Row &height"), row_, row_);
}

QLineEdit* FigureForm::addLine(QFormLayout& rows, const char* setting, const QString& label, const QString& name, const QString& hint) {
  auto* line = new QLineEdit;
  line->setAccessibleName(name);
  line->setPlaceholderText(hint);
  connect(line, &QLineEdit::textChanged, this, &FigureForm::changed);
  addRow(rows, label, line, line);
  lines_.emplace_back(setting, line);
  return line;
}

void FigureForm::addContents(QFormLayout& rows) {
  addLine(rows, "ranks", tr("&Ranks"), tr("Ranks to draw"), tr("all; or 0-3,8"));
  addLine(rows, "time", tr("T&ime"), tr("Part of the step to draw"), tr("whole step; or 10ms-50ms"));
  addLine(rows, "title", tr("&Title"), tr("Title of the figure"), tr("none"));
  addLine(rows, "predicted-title", tr("&Predicted title"), tr("Title above the predicted step"), tr("none"));
  addLine(rows, "measured-title", tr("&Measured title"), tr("Title above the measured step"), tr("none"));
  addLine(rows, "rank-label", tr("Rank &name"), tr("Word before a rank's number"), tr("none"));
  labels_->setAccessibleName(tr("Text in blocks"));
  labels_->addItem(tr("None"), QStringLiteral("none"));
  labels_->addItem(tr("Microbatch: 3"), QStringLiteral("microbatch"));
  labels_->addItem(tr("Full: F3, 2F3"), QStringLiteral("full"));
  labels_->setToolTip(tr("Full labels have the stage where a rank has several; where nearly none fits, the microbatch is written"));
  connect(labels_, &QComboBox::currentIndexChanged, this, &FigureForm::changed);
  addRow(rows, tr("&Block text"), labels_, labels_);
}

void FigureForm::addSwitches(QFormLayout& rows) {
  auto* grid = new QGridLayout;
  const std::vector<std::pair<const char*, QString>> all{{"legend", tr("&Legend")},     {"greyscale", tr("&Greyscale, hatched")},
                                                         {"messages", tr("M&essages")}, {"memory", tr("Memor&y")},
                                                         {"busy", tr("B&usy share")},   {"summary", tr("Ma&kespan, bubble")}};
  for (std::size_t i = 0; i < all.size(); ++i) {
    auto* box = new QCheckBox(all[i].second);
    box->setToolTip(textOf(figureSetting(all[i].first).help));
    connect(box, &QCheckBox::toggled, this, &FigureForm::changed);
    grid->addWidget(box, static_cast<int>(i / 2), static_cast<int>(i % 2));
    switches_.emplace_back(all[i].first, box);
  }
  switches_[0].second->setToolTip(tr("What the colours stand for"));
  switches_[2].second->setToolTip(tr("Messages below each rank, where there are any"));
  rows.addRow(grid);
}

FigureSteps FigureForm::steps() const { return static_cast<FigureSteps>(steps_->currentData().toInt()); }

int FigureForm::dpi() const { return dpi_->value(); }

FigureStyle FigureForm::style() const {
  FigureStyle style;
  style.width = millimetres_->value();
  style.fontSize = size_->value();
  figureSetting("row-height").set(style, QString::number(row_->value()).toStdString());
  figureSetting("font").set(style, font_->currentText().trimmed().toStdString());
  figureSetting("labels").set(style, labels_->currentData().toString().toStdString());
  for (const auto& [name, line] : lines_) figureSetting(name).set(style, line->text().toStdString());
  for (const auto& [name, box] : switches_) figureSetting(name).set(style, box->isChecked() ? "on" : "off");
  return style;
}

void FigureForm::setStyle(const FigureStyle& style) {
  {
    const QSignalBlocker quiet(this);
    millimetres_->setValue(style.width);
    width_->setCurrentIndex(std::max(0, width_->findData(millimetres_->value())));
    if (width_->currentData().toDouble() != millimetres_->value()) width_->setCurrentIndex(width_->count() - 1);
    size_->setValue(style.fontSize);
    row_->setValue(style.rowHeight);
    font_->setCurrentText(QString::fromStdString(style.font));
    labels_->setCurrentIndex(std::max(0, labels_->findData(textOf(nameOf(style.labels)))));
    for (const auto& [name, line] : lines_) line->setText(QString::fromStdString(figureSetting(name).text(style)));
    for (const auto& [name, box] : switches_) box->setChecked(figureSetting(name).text(style) == "on");
  }
  emit changed();
}

void FigureForm::setSteps(FigureSteps steps) {
  if (const int index = steps_->findData(static_cast<int>(steps)); index >= 0) steps_->setCurrentIndex(index);
}

void FigureForm::setDpi(int dpi) { dpi_->setValue(dpi); }

/// The titles of two steps are of figures with two.
void FigureForm::showSteps() {
  const bool isBoth = steps() == FigureSteps::Both;
  for (const auto& [name, line] : lines_) {
    if (std::string_view(name) != "predicted-title" && std::string_view(name) != "measured-title") continue;
    line->setEnabled(isBoth);
    if (auto* label = static_cast<QFormLayout*>(layout())->labelForField(line)) label->setEnabled(isBoth);
  }
}

}  // namespace pw::gui
