#pragma once

#include <QString>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "app/gui/document/document.h"

namespace pw::gui {

/// A design to be predicted.
struct PredictionRequest {
  std::uint64_t number = 0;  ///< of the requests of a document, ascending
  Design design;
  std::shared_ptr<const ModelGraph> graph;
};

/// The worker's result for one request.
struct PredictionAnswer {
  std::uint64_t number = 0;
  PlanRequest request;  ///< as given
  std::shared_ptr<const Prediction> prediction;
  std::shared_ptr<const Profile> profile;
  Cluster cluster;
  std::optional<std::vector<SplitPoint>> splitPoints;  ///< where the microbatch changed
  std::vector<NodeId> begins;                          ///< as given, or balanced
  std::optional<Certificate> certificate;              ///< of an order made for this design
  bool ordering = false;                               ///< a better order follows
  QString problem;
};

/// A thread that predicts the newest design it was given.
class PredictionWorker {
 public:
  /// `take` receives each answer in the thread of `owner`, as long as that exists.
  PredictionWorker(QObject& owner, std::function<void(const PredictionAnswer&)> take);
  ~PredictionWorker();
  PredictionWorker(const PredictionWorker&) = delete;
  PredictionWorker& operator=(const PredictionWorker&) = delete;
  /// Takes the place of a request that was not begun yet.
  void ask(PredictionRequest request);

 private:
  struct Private;
  std::unique_ptr<Private> d;
};

}  // namespace pw::gui
