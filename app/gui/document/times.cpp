#include "app/gui/document/times.h"

#include "app/gui/common/format.h"

namespace pw::gui {

TimesOf timesOf(const Measured& step) {
  if (!step.pinnedAs.isEmpty()) return TimesOf::Predicted;
  return step.run ? pw::timesOf(step.run->facts) : TimesOf::Measured;
}

QString nameOfTimes(const Measured& step) {
  if (step.isReplayed) return translated("replayed");
  switch (timesOf(step)) {
    case TimesOf::Measured: return translated("measured");
    case TimesOf::Rehearsed: return translated("rehearsed");
    case TimesOf::Predicted: return translated("plan %1").arg(step.pinnedAs);
  }
  return {};
}

QString whatHasTimes(const QString& name) {
  if (name == translated("predicted")) return translated("the prediction");
  if (name == translated("measured")) return translated("the measurement");
  if (name == translated("replayed")) return translated("the replay");
  if (name == translated("rehearsed")) return translated("the rehearsal");
  return name;
}

}  // namespace pw::gui
