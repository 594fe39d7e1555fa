#pragma once

#include <QByteArray>
#include <QObject>
#include <QString>
#include <QStringList>
#include <memory>

namespace pw::gui {

/// How a child process ended.
struct ChildOutcome {
  bool ok = false;         ///< exit status 0
  bool cancelled = false;  ///< after `cancel`
  int status = -1;         ///< exit status; −1: ended by a signal, or never started
  QByteArray output;       ///< stdout, at most its first 16 MiB
  QString error;           ///< one sentence if it is not ok: the last one that it wrote
};

/// A `pipewright` process. Its progress is read from the JSON lines that `--progress json` writes to stderr, its error from the last other
/// line there. The process never outlives the object or the app, however that ends. Main thread only; never blocks, except in the
/// destructor, which gives a running process one second to end.
class Child : public QObject {
  Q_OBJECT
 public:
  explicit Child(QObject* parent = nullptr);
  ~Child() override;

  /// `pipewright` beside our own executable, else what $PIPEWRIGHT names; empty where there is neither.
  [[nodiscard]] static QString program();

  /// Starts a process; one at a time. All failures are reported through `finished`.
  void start(const QString& program, const QStringList& arguments);
  /// Sends SIGINT, after 3 s SIGTERM, and after another 2 s kills it and its children.
  void cancel();
  void setPatience(int firmMs, int killMs);  ///< instead of these times
  [[nodiscard]] bool isRunning() const;
  [[nodiscard]] qint64 processId() const;  ///< 0: none runs

 signals:
  void progressed(qint64 done, qint64 all, const QString& note);
  void finished(const pw::gui::ChildOutcome& outcome);

 private:
  struct Private;
  std::unique_ptr<Private> d;
};

}  // namespace pw::gui
