#include "app/gui/plan/default_times_fields.h"

#include <QLabel>
#include <QLineEdit>
#include <array>

#include "app/gui/cluster/figures.h"
#include "app/gui/document/document.h"
#include "app/gui/document/drawn.h"
#include "app/gui/document/loading.h"

namespace pw::gui {
namespace {

struct Field {
  ActionKind kind;
  Ns DefaultTimes::*time;
  QLineEdit* edit = nullptr;
  QLabel* label = nullptr;
};

/// The rows that the design's times are for; null: there are none yet.
std::shared_ptr<const Schedule> rowsOf(const Design& design) { return design.customRows ? design.customRows : drawnOf(design); }

bool has(const Schedule& rows, ActionKind kind) {
  for (const auto& row : rows.rows) {
    for (const Action& action : row) {
      if (action.kind == kind) return true;
    }
  }
  return false;
}

}  // namespace

struct DefaultTimesFields::Private {
  Document& document;
  QFormLayout& form;
  std::array<Field, 4> fields{{{ActionKind::Forward, &DefaultTimes::forward},
                               {ActionKind::Backward, &DefaultTimes::backward},
                               {ActionKind::BackwardInput, &DefaultTimes::input},
                               {ActionKind::BackwardWeight, &DefaultTimes::weight}}};
};

DefaultTimesFields::DefaultTimesFields(Document& document, QFormLayout& form, QObject* parent)
    : QObject(parent), d(std::make_unique<Private>(Private{document, form})) {
  const std::array names{tr("Forward (F)"), tr("Backward (B)"), tr("Input gradient (I)"), tr("Weight gradient (W)")};
  for (std::size_t i = 0; i < names.size(); ++i) {
    Field& field = d->fields.at(i);
    field.edit = new QLineEdit;
    field.edit->setAccessibleName(tr("Time of %1").arg(names.at(i)));
    field.edit->setToolTip(tr("What each such action takes on every stage, since the schedule has no times of its own: 1.5 ms, 800 µs"));
    field.label = new QLabel(names.at(i));
    field.label->setBuddy(field.edit);
    form.addRow(field.label, field.edit);
    connect(field.edit, &QLineEdit::editingFinished, this, [this, i, name = names.at(i)] {
      const Field& changed = d->fields.at(i);
      if (!changed.edit->isModified()) return;
      changed.edit->setModified(false);  // taken: undo is the document's from here on
      const auto time = latencyIn(changed.edit->text());
      if (!time || *time < Ns(1)) {
        emit problem(tr("\"%1\" is no time of an action: write a number above 0 and ns, µs, ms or s, as 1.5 ms, and at most %2.")
                         .arg(changed.edit->text(), latencyInput(kLongestDefault)));
        return showDesign();
      }
      d->document.edit(tr("Change the time of %1").arg(name), [&](Design& design) {
        if (!design.defaultTimes || (*design.defaultTimes).*changed.time == *time) return;
        DefaultTimes times = *design.defaultTimes;
        times.*changed.time = *time;
        setDefaultTimes(design, times);
      });
    });
  }
}

DefaultTimesFields::~DefaultTimesFields() = default;

void DefaultTimesFields::showDesign() {
  const Design& design = d->document.design();
  const auto rows = design.defaultTimes ? rowsOf(design) : nullptr;
  for (Field& field : d->fields) {
    const bool isShown = rows && has(*rows, field.kind);
    d->form.setRowVisible(field.edit, isShown);
    if (isShown && !field.edit->isModified()) field.edit->setText(latencyInput((*design.defaultTimes).*field.time));
  }
}

}  // namespace pw::gui
