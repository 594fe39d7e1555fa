#include "app/gui/common/jobs.h"

#include <QMetaObject>
#include <chrono>
#include <thread>
#include <utility>

namespace pw::gui {

/// One request: its control is shared with the thread, which may outlive the request but not the job.
struct Job::Thread {
  std::shared_ptr<JobControl> control;
  std::thread thread;
  bool running = false;
};

void JobControl::progress(std::int64_t done, std::int64_t all, const QString& note) {
  if (report_) report_(done, all, note);
}

Job::Job(QObject* parent) : QObject(parent), thread_(std::make_unique<Thread>()) {}

Job::~Job() {
  if (thread_->control) thread_->control->cancelled_ = true;
  if (thread_->thread.joinable()) thread_->thread.join();
}

bool Job::isRunning() const { return thread_->running; }

void Job::cancel() {
  if (!thread_->running) return;
  thread_->control->cancelled_ = true;
  thread_->running = false;
  emit finished();
}

void Job::start(const QString& title, const std::function<std::function<void()>(JobControl&)>& work) {
  if (thread_->control) thread_->control->cancelled_ = true;
  // At most one of our threads computes at a time: a new one waits for the one before, which stops as soon as it checks.
  std::thread before = std::move(thread_->thread);
  title_ = title;
  auto control = std::make_shared<JobControl>();
  thread_->control = control;
  thread_->running = true;
  using Clock = std::chrono::steady_clock;
  control->report_ = [this, control = std::weak_ptr(control), last = Clock::time_point{}](std::int64_t done, std::int64_t all,
                                                                                          const QString& note) mutable {
    const auto now = Clock::now();
    if (now - last < std::chrono::milliseconds(80) && done != all) return;
    last = now;
    QMetaObject::invokeMethod(
        this,
        [this, control, done, all, note] {
          const auto c = control.lock();
          if (c && !c->isCancelled()) emit progressed(done, all, note);
        },
        Qt::QueuedConnection);
  };
  auto body = [this, work, control](std::thread previous) {
    if (previous.joinable()) previous.join();
    std::function<void()> result;
    QString error;
    try {
      if (!control->isCancelled()) result = work(*control);
    } catch (const std::bad_alloc&) {
      error = tr("There is not enough memory for this.");
    } catch (const std::exception& e) {
      error = QString::fromUtf8(e.what());
    }
    QMetaObject::invokeMethod(
        this,
        [this, control, result, error] {
          if (control->isCancelled() || thread_->control != control) return;
          thread_->running = false;
          if (!error.isEmpty())
            emit failed(error);
          else if (result)
            result();
          if (thread_->control == control && !thread_->running) emit finished();  // otherwise the result started something new
        },
        Qt::QueuedConnection);
  };
  emit started(title);
  thread_->thread = std::thread(body, std::move(before));
}

}  // namespace pw::gui
