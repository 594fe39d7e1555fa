#include "app/gui/plan/schedule_box.h"

#include <QSignalBlocker>
#include <QStandardItemModel>
#include <algorithm>

#include "app/gui/common/format.h"
#include "app/gui/document/document.h"
#include "app/gui/document/drawn.h"
#include "engine/planning/schedule_choice.h"
#include "schedules/generate.h"
#include "simulator/order/find.h"

namespace pw::gui {
namespace {

/// Of the first item that is the project's or a file's own schedule; the families and what is made for costs come before.
int ownIndex() { return static_cast<int>(generators().size() + kMadeSchedules.size()); }

}  // namespace

void changeShape(Document& document, const QString& what, const std::function<void(PlanRequest&)>& change) {
  document.edit(what, [&](Design& design) {
    change(design.request);
    design.customRows.reset();
    design.source.clear();
  });
}

void chooseSchedule(Document& document, std::string_view name) {
  changeShape(document, ScheduleBox::tr("Choose schedule %1").arg(textOf(name)), [&](PlanRequest& request) {
    request.chunks = chunksWith(name, request);
    request.schedule = name;
  });
}

ScheduleBox::ScheduleBox(Document& document, QWidget* parent) : QComboBox(parent), document_(document) {
  setAccessibleName(tr("Schedule"));
  for (const Generator& family : generators()) add(textOf(family.name), textOf(family.summary));
  for (const MadeSchedule& made : kMadeSchedules) {
    add(textOf(made.name), made.room == 0
                               ? tr("An order made for the costs of these stages and the memory limit; it follows every change of theirs")
                               : tr("As auto, with the activations of at most %n times as many microbatches as ranks", nullptr, made.room));
  }
  connect(this, &QComboBox::activated, this, &ScheduleBox::choose);
}

void ScheduleBox::add(const QString& name, const QString& tip) {
  addItem(name);
  setItemData(count() - 1, tip, Qt::ToolTipRole);
}

void ScheduleBox::choose(int index) {
  const std::string name = itemText(index).toStdString();
  if (index >= ownIndex()) return chooseDrawn(name);
  chooseSchedule(document_, name);
}

/// The ranks and chunks that it was drawn for come with it; it adapts to the plan's microbatches.
void ScheduleBox::chooseDrawn(const std::string& name) {
  const auto drawn = drawnNamed(document_.design(), name);
  if (!drawn) return;  // the file's own
  changeShape(document_, tr("Choose schedule %1").arg(QString::fromStdString(name)), [&](PlanRequest& request) {
    request.schedule = name;
    request.ranks = static_cast<int>(drawn->rows.size());
    request.chunks = std::max(1, static_cast<int>(drawn->placement.stages()) / std::max(1, request.ranks));
    request.rankOrder.clear();
  });
}

void ScheduleBox::showDesign() {
  const QSignalBlocker quiet(this);
  const Design& design = document_.design();
  while (count() > ownIndex()) removeItem(ownIndex());
  for (const auto& drawn : design.drawn) {
    add(QString::fromStdString(drawn->name), tr("Edited by hand, or from a CSV; drawn for %1 ranks, %2 stages and %3 microbatches")
                                                 .arg(drawn->rows.size())
                                                 .arg(drawn->placement.stages())
                                                 .arg(drawn->microbatches));
  }
  const QString name = QString::fromStdString(design.request.schedule);
  if (design.customRows) {
    addItem((design.job ? tr("%1 (as it ran)") : tr("%1 (as in the file)")).arg(name));
    setCurrentIndex(count() - 1);
  } else {
    setCurrentIndex(findText(name));
  }
  refuse();
}

void ScheduleBox::refuse() {
  const auto* items = qobject_cast<QStandardItemModel*>(model());
  for (int i = 0; i < static_cast<int>(generators().size()); ++i) {
    const Generator& family = generators()[static_cast<std::size_t>(i)];
    const auto refusal = refusalOf(family, document_.design().request);
    QStandardItem* item = items->item(i);
    item->setForeground(palette().color(refusal ? QPalette::Disabled : QPalette::Active, QPalette::Text));
    const QString summary = textOf(family.summary);
    item->setToolTip(refusal ? summary + QStringLiteral("\n") + QString::fromStdString(*refusal) : summary);
  }
}

void ScheduleBox::showExecuted(const Schedule* executed) {
  const bool isNamed = executed != nullptr && !executed->name.empty();
  addItem(isNamed               ? tr("%1 (as in the trace)").arg(QString::fromStdString(executed->name))
          : executed != nullptr ? tr("an order of its own")
                                : tr("not a whole step"));
  setCurrentIndex(count() - 1);
}

}  // namespace pw::gui
