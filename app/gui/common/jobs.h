#pragma once

#include <QObject>
#include <QString>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

namespace pw::gui {

/// What a job's work can access: whether to stop, and progress reports. Used on the job's thread.
class JobControl {
 public:
  [[nodiscard]] bool isCancelled() const { return cancelled_; }
  /// `done` of `all` (0: unknown); shown about ten times a second at most.
  void progress(std::int64_t done, std::int64_t all, const QString& note = {});

 private:
  friend class Job;
  std::atomic<bool> cancelled_{false};
  std::function<void(std::int64_t, std::int64_t, const QString&)> report_;
};

/// One piece of work at a time on a separate thread: the newest request wins. `start` cancels the current work (dropping its result) and
/// starts the new one. Results arrive on the main thread. Errors of the work arrive as one sentence in `failed`. The destructor cancels and
/// waits.
class Job : public QObject {
  Q_OBJECT
  Q_DISABLE_COPY_MOVE(Job)
 public:
  explicit Job(QObject* parent = nullptr);
  ~Job() override;

  /// `work` runs on the thread and returns a function that is then called on the main thread, unless cancelled.
  void start(const QString& title, const std::function<std::function<void()>(JobControl&)>& work);
  void cancel();
  [[nodiscard]] bool isRunning() const;
  [[nodiscard]] QString title() const { return title_; }

 signals:
  void started(const QString& title);
  void progressed(qint64 done, qint64 all, const QString& note);
  void failed(const QString& sentence);
  void finished();  ///< ended, failed or cancelled; not when replaced by a newer one

 private:
  struct Thread;
  std::unique_ptr<Thread> thread_;
  QString title_;
};

}  // namespace pw::gui
