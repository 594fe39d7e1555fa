#include "app/gui/timeline/selection_details.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "app/gui/common/format.h"
#include "app/gui/timeline/facts/details.h"
#include "app/gui/timeline/facts/navigation.h"

namespace pw::gui {
namespace {

/// How many there are, and how long they take.
QString chosenDetails(const std::vector<SourcedSpan>& chosen, const Scene& scene) {
  Ns total = 0, least = std::numeric_limits<Ns>::max(), most = 0;
  for (const SourcedSpan& one : chosen) {
    const Span span = spanOf(*timelineFrom(scene, one.source), one.span);
    total += span.end - span.start;
    least = std::min(least, span.end - span.start);
    most = std::max(most, span.end - span.start);
  }
  const QString count = chosen.size() == 1 ? Selection::tr("1 block chosen") : Selection::tr("%1 blocks chosen").arg(chosen.size());
  return count + QStringLiteral(" · ") +
         Selection::tr("together %1, each %2 to %3").arg(durationText(total), durationText(least), durationText(most)) + QLatin1Char('\n') +
         Selection::tr("Statistics, below, has them by kind and stage.");
}

}  // namespace

QString detailsOf(const Selection& selection, const Scene& scene, Knowledge& knowledge, bool isMoving) {
  if (isEmpty(scene)) return {};
  if (selection.emphasis() == Selection::Emphasis::Chosen) return chosenDetails(selection.emphasized(), scene);
  if (scene.selected) return detailsOf(knowledge.factsOf(*scene.selected, !isMoving && knowledge.isPrepared(scene.selected->source)));
  if (const auto& gap = selection.gap()) {
    const Cause cause = knowledge.causeOf(*gap);
    return cause.chain.isEmpty() ? cause.headline : cause.headline + QLatin1Char('\n') + Selection::tr("Causes: %1").arg(cause.chain);
  }
  if (scene.range) {
    const Ns from = scene.range->first, to = scene.range->second;
    const auto of = [&](const Timeline* t) { return t == nullptr ? std::vector<RangeTotals>() : rangeTotals(*t, from, to); };
    return rangeDetails(from, to, of(scene.predicted.get()), of(scene.measured.get()), scene.measuredName, scene.ranks);
  }
  if (selection.showsPath() && knowledge.explanation() != nullptr) return pathDetails(knowledge.explanation()->path);
  return {};
}

}  // namespace pw::gui
