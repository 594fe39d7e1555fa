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
  QString error;           ///< one sentence where it is not ok: the last one it said
};

/// A `pipewright` process. Its progress is read from the JSON lines that `--progress json` writes to stderr, its complaint from the last
/// other line there. No process is left when the object, or the app however it ends, is gone. Main thread only; never blocks but for the
/// destructor, which gives a process that runs a second to end.
class Child : public QObject {
  Q_OBJECT
 public:
  explicit Child(QObject* parent = nullptr);
  ~Child() override;

  /// `pipewright` beside our own executable, else what $PIPEWRIGHT names; empty where there is neither.
  [[nodiscard]] static QString program();

  /// One process at a time. Whatever goes wrong arrives in `finished`.
  void start(const QString& program, const QStringList& arguments);
  /// Asks it to end (SIGINT), 3 s later firmly (SIGTERM), 2 s later it and its children are killed.
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
