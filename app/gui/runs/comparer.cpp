#include "app/gui/runs/comparer.h"

namespace pw::gui {
namespace {

Verdict verdictOn(const ComparisonSubject& subject) {
  const Measured& m = *subject.measured;
  if (subject.other) return judge(subject.other->trace, m.trace, {}, subject.splits);
  if (!m.run) return judge(traceOf(*subject.prediction), m.trace, {}, subject.splits);
  const Plan& plan = m.run->plan;
  return judge(m.run->predicted, m.trace, replayedMakespan(plan.schedule, plan.costs, m.trace));
}

}  // namespace

Comparer::Comparer(QObject* parent) : QObject(parent) {
  connect(&job_, &Job::failed, this, [this](const QString& sentence) {
    subject_ = {};  // has no verdict
    emit failed(sentence);
  });
}

void Comparer::compare(const ComparisonSubject& subject) {
  if (subject == subject_ && !job_.isRunning()) {
    emit compared();
    return;
  }
  subject_ = subject;
  job_.start(tr("Compare"), [this, subject](JobControl&) -> std::function<void()> {
    return [this, found = std::make_shared<const Verdict>(verdictOn(subject))] {
      verdict_ = found;
      emit compared();
    };
  });
}

void Comparer::forget() {
  job_.cancel();
  subject_ = {};
}

}  // namespace pw::gui
