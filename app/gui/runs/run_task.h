#pragma once

#include <QObject>
#include <QString>
#include <memory>
#include <optional>

#include "app/gui/document/document.h"
#include "backends/messages/transport.h"

namespace pw::gui {

/// As `--precision` has it.
[[nodiscard]] QString precisionWord(DType precision);

/// The settings of a run or a profile.
struct RunRequest {
  std::shared_ptr<const Plan> plan;
  int steps = 5;
  Transport transport = Transport::Ucx;
  DType precision = DType::Unknown;
  QString store;  ///< file the run is recorded in
  OptimizerSpec optimizer;
  bool synthetic = false;  ///< rehearses: stages take as long as the plan says and compute nothing
};
struct ProfileRequest {
  std::vector<std::string> models;
  std::int64_t microbatch = 1;
  int ranks = 1;  ///< processes that compute at once
  Loss loss;
  Computing computing;
};

/// One run or profile at a time, in a `pipewright` child. The files that it needs are kept in a temporary folder until it ends. Main
/// thread only.
class RunTask : public QObject {
  Q_OBJECT
 public:
  explicit RunTask(QObject* parent = nullptr);
  ~RunTask() override;

  void setProgram(const QString& program);  ///< instead of `Child::program()`
  void run(const RunRequest& request);
  void profile(const ProfileRequest& request);
  void cancel();
  [[nodiscard]] bool isRunning() const;
  [[nodiscard]] qint64 processId() const;  ///< 0: none runs

 signals:
  void progressed(qint64 done, qint64 all, const QString& note);
  /// The newest step as far as it is known, at most ten times a second; its `live` is set.
  void arrived(std::shared_ptr<const pw::gui::Measured> measured);
  /// `id`: where the run was stored; nothing where it was not. `error` is empty when it completed or was cancelled.
  void runEnded(bool ok, std::optional<pw::RunId> id, const QString& error);
  /// `profile` is null when it did not complete.
  void profileEnded(std::shared_ptr<const pw::Profile> profile, const QString& error);

 private:
  struct Private;
  std::unique_ptr<Private> d;
};

}  // namespace pw::gui
