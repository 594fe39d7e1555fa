#include "app/gui/runs/comparer.h"

#include "engine/planning/run_verdict.h"

namespace pw::gui {
namespace {

JudgedStep judgedStep(const Measured& step) {
  return {step.trace, step.pinnedAs.isEmpty() ? std::optional(step.reductions) : std::nullopt};
}

StepVerdict verdictOn(const ComparisonSubject& subject) {
  const Measured& m = *subject.measured;
  if (!subject.other && m.run) return judgeRun(*m.run, m.trace);
  const JudgedStep before = subject.other ? judgedStep(*subject.other) : JudgedStep{traceOf(*subject.prediction), std::nullopt};
  return judgeSteps(before, judgedStep(m), subject.splits);
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
