#pragma once

#include <QObject>
#include <QTimer>
#include <memory>

#include "app/gui/common/jobs.h"
#include "app/gui/document/document.h"
#include "simulator/search/search.h"

namespace pw::gui {

/// What found plans depend on in addition to what a search tries: if it changes, they are outdated.
struct SearchBasis {
  explicit SearchBasis(const Design& design);
  bool operator==(const SearchBasis&) const = default;

  std::string cluster;
  DType precision;
  Attention attention;
  std::shared_ptr<const Profile> profile;
  PlanRequest base;  ///< without what a search chooses
};

/// How many combinations of a search are impossible, in a sentence; empty: none.
[[nodiscard]] QString skippedIn(const Found& found);
/// Why they are, one reason in a line.
[[nodiscard]] QString reasonsIn(const Found& found);

/// A search in the background. What it finds arrives in batches, several times a second, and then as a whole in its order.
class PlanSearch : public QObject {
  Q_OBJECT
 public:
  explicit PlanSearch(QObject* parent = nullptr);

  /// Ends a search that runs, dropping what has not arrived.
  void start(std::shared_ptr<const ModelGraph> graph, const Design& design, const SearchSpace& space);
  /// What was found arrives, and nothing after it but `ended`.
  void stop();
  /// Nothing arrives any more but `ended`, if it ran.
  void drop();
  [[nodiscard]] bool isRunning() const { return job_.isRunning(); }

 signals:
  void arrived(const std::vector<pw::Candidate>& more);
  void progressed(qint64 done, qint64 all);
  void found(const pw::Found& all);  ///< not when stopped
  void failed(const QString& sentence);
  void ended();

 private:
  struct Queue;
  void drain();

  std::shared_ptr<Queue> queue_;
  QTimer arrivals_;
  Job job_;  ///< last: ends before what it uses
};

}  // namespace pw::gui
