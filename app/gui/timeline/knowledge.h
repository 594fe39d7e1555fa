#pragma once

#include <QObject>
#include <array>
#include <memory>
#include <optional>

#include "app/gui/common/jobs.h"
#include "app/gui/timeline/drawing/matches.h"
#include "app/gui/timeline/facts/dependencies.h"
#include "app/gui/timeline/facts/details.h"
#include "app/gui/timeline/facts/explanations.h"
#include "app/gui/timeline/shown_timelines.h"
#include "simulator/report/explain.h"

namespace pw::gui {

/// What is known of the timelines that are shown, beside their spans: computed when first needed, and kept until they change.
/// What takes long is made in the background, of large timelines and where a prediction is explained.
class Knowledge : public QObject {
  Q_OBJECT
  Q_DISABLE_COPY_MOVE(Knowledge)
 public:
  Knowledge(const ShownTimelines& shown, const Scene& scene);

  void forget(Source source);  ///< its timeline is another one now

  /// Null without the timeline; made now where it was not yet.
  [[nodiscard]] const Dependencies* dependencies(Source source);
  [[nodiscard]] bool isPrepared(Source source) const;  ///< `dependencies` returns soon
  void prepare();                                      ///< makes in the background what is not; `prepared` follows
  /// The same action or message in the other timeline; nothing also while timelines move, or where finding out would take long.
  [[nodiscard]] std::optional<SourcedSpan> counterpart(const SourcedSpan& span);
  /// Of a gap of a timeline that is shown: as explained, and until then by rule alone (then `explained` follows).
  [[nodiscard]] Cause causeOf(const BubbleRef& gap);
  /// Of a span of a timeline that is shown; `fully`: with what it waited for and is needed by. Its counterpart is none where the
  /// scene compares no times.
  [[nodiscard]] SpanFacts factsOf(const SourcedSpan& span, bool fully);

  [[nodiscard]] const Explanation* explanation() const { return explanation_.get(); }  ///< of the prediction; null: not known yet
  void requestExplanation();                                                           ///< starts, unless it is known or in progress

 signals:
  void prepared();
  void explained();

 private:
  [[nodiscard]] StageLinks links(Source source) const;
  [[nodiscard]] const Matches& matches();  ///< of both timelines

  const ShownTimelines& shown_;
  const Scene& scene_;
  std::array<std::shared_ptr<const Dependencies>, 2> dependencies_;  ///< by source
  std::optional<Matches> matches_;
  std::shared_ptr<const Explanation> explanation_;
  Job explaining_, preparing_;  ///< last: they end before what they refer to
};

}  // namespace pw::gui
