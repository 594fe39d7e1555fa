#pragma once

#include <QObject>
#include <optional>
#include <utility>
#include <vector>

#include "app/gui/timeline/knowledge.h"
#include "app/gui/timeline/place.h"

namespace pw::gui {

/// What of the timelines is marked: a span, a bubble with its causes, a range of time, or a rank; what is highlighted beside it; and ways
/// to go on from it. Of a scene it writes `selected`, `hovered`, `range`, `highlighted` and `dimsOthers`.
class Selection : public QObject {
  Q_OBJECT
  Q_DISABLE_COPY_MOVE(Selection)
 public:
  Selection(Scene& scene, Knowledge& knowledge, Place& place);

  // ---- What is selected: one of these, or nothing ----
  void selectSpan(const std::optional<SourcedSpan>& span);  ///< and shows it; one that is not there selects nothing
  void selectWithin(const SourcedSpan& span);               ///< likewise, and a range stays selected around it
  void selectInPlace(const SourcedSpan& span);              ///< as `selectSpan`, without moving the view
  void selectGap(const BubbleRef& gap);                     ///< and shows it with its causes; no effect where there is none
  void selectTimes(Ns from, Ns to);                         ///< in any order; outside the step: as far as it goes
  /// Takes a block to those chosen, or out of them, beginning with the one that is selected; they stay until something else is selected.
  void choose(const SourcedSpan& span);
  /// All of its track to it from the one that was chosen last, else selected; where that is on another track, or none is: `choose`.
  void chooseUpTo(const SourcedSpan& span);
  void selectRank(Rank rank);  ///< nothing else stays selected, but for a span of it
  void clear();
  void leave();                                                               ///< the span within a range, which stays; else clears
  [[nodiscard]] const std::optional<BubbleRef>& gap() const { return gap_; }  ///< the others are in the scene
  [[nodiscard]] bool isEmpty() const { return !scene_.selected && !gap_ && !scene_.range; }
  /// Of the span or bubble; else the rank that was pointed at.
  [[nodiscard]] std::optional<Rank> rank() const;
  void pointAt(std::optional<Rank> rank) { rank_ = rank; }  ///< without selecting it
  void turnTo(Rank rank);                                   ///< forgets span and bubble without a word, for what happens next to this rank
  void fit();                                               ///< shows what is selected as large as possible; else everything

  // ---- What a project remembers ----
  [[nodiscard]] SavedSelection saved() const;
  void restore(const SavedSelection& saved);  ///< without moving the view; what is not there selects nothing

  // ---- From what is selected to another ----
  void walk(int direction);      ///< along the track
  void walkRows(int direction);  ///< to the row below (> 0) or above
  void follow(int direction);    ///< along dependencies

  // ---- What is highlighted ----
  enum class Emphasis : std::uint8_t { None, Chain, Path, Found, Cycle, Stuck, Chosen };
  [[nodiscard]] Emphasis emphasis() const { return emphasis_; }
  void emphasize(Emphasis kind, std::vector<SourcedSpan> spans);
  [[nodiscard]] std::vector<SourcedSpan> emphasized() const;  ///< sorted; not what is marked beside it
  void leaveGap();                                            ///< and its causes: something else is going to be highlighted
  void hover(const std::optional<SourcedSpan>& span);
  void setShowsPath(bool on);  ///< the critical path, where nothing else is highlighted
  [[nodiscard]] bool showsPath() const { return showsPath_; }
  void showPath();  ///< again, after something else was highlighted

  // ---- What it follows ----
  void forget();                ///< the timeline is of another model
  void keep(bool isSameShape);  ///< other timelines: what is selected stays, where it is still there
  void markAlso();              ///< the counterparts of what is selected and hovered
  void refresh();               ///< causes and path, of timelines that rest

 signals:
  void changed();  ///< what is selected
  void marked();   ///< what is highlighted

 private:
  void take(const SourcedSpan& span);
  void chooseAll(std::vector<SourcedSpan> chosen);
  void leaveMarks();
  void unmarkWhatIsGone();
  void followChosen();
  void showCauses();
  [[nodiscard]] std::optional<SourcedSpan> startingPoint() const;
  [[nodiscard]] const Timeline* timeline(Source source) const { return timelineFrom(scene_, source); }

  Scene& scene_;
  Knowledge& knowledge_;
  Place& place_;
  SpanTag selectedTag_;
  std::vector<std::pair<SourcedSpan, SpanTag>> chosen_;  ///< while `emphasis_` is of those chosen
  std::optional<SourcedSpan> anchor_;                    ///< of those chosen: the one from which `chooseUpTo` goes
  std::optional<BubbleRef> gap_;
  std::optional<SpanTag> afterGap_;  ///< what the gap is before; nothing: the end of the row
  std::optional<Rank> rank_;
  Emphasis emphasis_ = Emphasis::None;
  bool showsPath_ = false;
  std::vector<SourcedSpan> also_;  ///< put into `scene_.highlighted` beside the emphasis
};

}  // namespace pw::gui
