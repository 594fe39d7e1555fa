#include "app/gui/timeline/explainer.h"

#include <utility>

namespace pw::gui {

void Explainer::setPrediction(std::shared_ptr<const Prediction> prediction) {
  if (prediction == prediction_) return;
  job_.cancel();
  prediction_ = std::move(prediction);
  explanation_ = nullptr;
}

void Explainer::request() {
  if (!prediction_ || explanation_ || job_.isRunning()) return;
  job_.start(tr("Explaining bubbles"), [this, p = prediction_](JobControl&) -> std::function<void()> {
    auto made = std::make_shared<const Explanation>(explain(*p->rows, p->costs, p->program, p->times));
    return [this, p, made] {
      if (p != prediction_) return;
      explanation_ = made;
      emit explained();
    };
  });
}

}  // namespace pw::gui
