#include "app/gui/runs/comparer.h"

#include "simulator/trace/reductions.h"

namespace pw::gui {
namespace {

/// Cuts off what ranks waited for others to begin reductions; a prediction has no such waits. Their sum.
Ns cutWaits(const Measured& step, Trace& trace) {
  if (!step.pinnedAs.isEmpty()) return 0;
  return cutReductionWaits(trace, step.reductions.ranks, step.reductions.tensor, step.reductions.names);
}

StepVerdict verdictOn(const ComparisonSubject& subject) {
  const Measured& m = *subject.measured;
  if (!subject.other && m.run) return judgeRun(*m.run, m.trace);
  StepVerdict result;
  Trace after = m.trace, before = subject.other ? subject.other->trace : traceOf(*subject.prediction);
  result.afterWaits = cutWaits(m, after);
  if (subject.other) result.beforeWaits = cutWaits(*subject.other, before);
  result.verdict = judge(before, after, {}, subject.splits);
  return result;
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
    return [this, found = std::make_shared<const StepVerdict>(verdictOn(subject))] {
      result_ = found;
      emit compared();
    };
  });
}

void Comparer::forget() {
  job_.cancel();
  subject_ = {};
}

}  // namespace pw::gui
