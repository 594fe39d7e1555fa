#pragma once

#include <QObject>
#include <QTimer>
#include <memory>

#include "app/gui/document/document.h"
#include "app/gui/timeline/drawing/scene.h"

namespace pw::gui {

/// Which of a document's timelines a scene shows: the newest prediction, or the last one while a new one is awaited or not possible; and
/// the measured one. Of a scene it writes `predicted`, `measured`, their names, and
/// `comparesTimes`.
class ShownTimelines : public QObject {
  Q_OBJECT
  Q_DISABLE_COPY_MOVE(ShownTimelines)
 public:
  ShownTimelines(const Document& document, Scene& scene);

  /// What taking a timeline over changed.
  struct Change {
    bool isAny = false;         ///< else the same is shown as before
    bool isOtherModel = false;  ///< blocks of the same name and times are others now
    bool isOtherShape = false;  ///< an index need not mean the same action any more
  };
  Change takePrediction();
  Change takeMeasured();

  [[nodiscard]] const std::shared_ptr<const Prediction>& prediction() const { return prediction_; }  ///< of `scene.predicted`
  [[nodiscard]] const std::shared_ptr<const Measured>& measured() const { return measured_; }        ///< of `scene.measured`
  [[nodiscard]] bool awaitsModel() const { return newModel_ && document_.isPredicting(); }           ///< what is shown is of another one
  [[nodiscard]] bool isMoving() const { return document_.isDragging(); }  ///< timelines change many times a second
  [[nodiscard]] bool isLarge() const { return isLarge_; }                 ///< what takes time with its spans is put off

  /// Of one copy of the pipeline, where both timelines have as many or do not say; else 0.
  [[nodiscard]] std::size_t pipelineRanks() const;

  // ---- The plan before its last change ----
  /// What is outlined over the plan at hand: during a drag, and after any other change until it is dismissed. Null: nothing, also where
  /// ranks are not as many, beside measured times, and where there is a lot to draw.
  [[nodiscard]] std::shared_ptr<const Prediction> before() const;
  void dismissChange() { dismissed_ = document_.before(); }
  [[nodiscard]] bool isChangeDismissed() const { return document_.before() == dismissed_; }

  // ---- Rest: what may wait until a drag rests ----
  void settleLater();  ///< `settled` follows, a moment after the last call
  [[nodiscard]] bool isSettled() const { return !isMoving() && !settling_.isActive(); }

 signals:
  void settled();

 private:
  void compareStages();
  void measureSize();

  const Document& document_;
  Scene& scene_;
  bool newModel_ = true;
  std::shared_ptr<const ModelGraph> graph_;
  std::shared_ptr<const Prediction> prediction_;
  std::shared_ptr<const Measured> measured_;
  std::size_t ownRanks_ = 0;                     ///< of one of the pipelines in it, by what they do
  std::shared_ptr<const Prediction> dismissed_;  ///< of the change that people have seen
  bool isLarge_ = false;
  QTimer settling_;
};

}  // namespace pw::gui
