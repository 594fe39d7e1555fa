#pragma once

#include <QWidget>
#include <vector>

#include "backends/messages/transport.h"
#include "engine/run/host_inventory.h"
#include "simulator/costs/profile.h"

class QComboBox;
class QLabel;
class QProgressBar;
class QPushButton;
class QSpinBox;

namespace pw::gui {

/// The line above the runs: starts and cancels runs and profiles, and shows their progress or the last result.
class RunControls : public QWidget {
  Q_OBJECT
 public:
  explicit RunControls(QWidget* parent = nullptr);

  /// What can be done with what is open.
  struct Possible {
    QString runProblem;      ///< why there is no plan to run; empty: there is one
    QString profileProblem;  ///< why there is nothing to profile; empty: there is a model
    bool rehearses = false;  ///< a run computes nothing
  };
  void setState(bool busy, const Possible& possible);
  void setProgress(qint64 done, qint64 all, const QString& text);  ///< `all` 0: unknown
  void say(const QString& text);
  /// What should be known before a run: shown while there is nothing else to say.
  void setHint(const QString& text);
  [[nodiscard]] const QString& hint() const { return hint_; }
  void setSteps(int steps);
  /// What can be used here, and why not. Until this is called, transports of GPUs cannot.
  void setTransports(const std::vector<TransportHere>& transports);
  /// Chooses how to compute as these costs were measured, as far as this machine can.
  void follow(const Computing& computing);
  [[nodiscard]] Transport transport() const;
  [[nodiscard]] Computing computing() const;
  [[nodiscard]] QString text() const;  ///< what the line says

 signals:
  void runRequested(int steps);
  void profileRequested();
  void cancelRequested();

 private:
  void use(Transport transport);
  void tip();

  QPushButton *run_, *profile_, *cancel_;
  QSpinBox* steps_;
  QComboBox *transport_, *precision_;
  bool gpuWanted_ = false;  ///< by what was followed, before it was known whether there is one
  QProgressBar* progress_;
  QLabel* status_;
  QString said_, hint_;
  Possible possible_;
};

}  // namespace pw::gui
