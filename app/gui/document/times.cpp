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

}  // namespace pw::gui
