#pragma once

#include <QObject>
#include <QString>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "app/gui/common/jobs.h"
#include "app/gui/document/document.h"
#include "schedules/editing/edit.h"

namespace pw::gui {

/// Editing the document's schedule by hand: what of it is selected, the edits of that, and a drag in progress. An edit is one undo step of
/// the document; one that is not possible changes nothing and is refused with a reason. Actions are those of the predicted timeline.
class HandEdit : public QObject {
  Q_OBJECT
  Q_DISABLE_COPY_MOVE(HandEdit)
 public:
  explicit HandEdit(Document& document, QObject* parent = nullptr);
  ~HandEdit() override;

  [[nodiscard]] bool isOn() const { return on_; }
  /// Where nothing is open that could be edited, it stays off, and says why (`refused`).
  void setOn(bool on);
  /// What says why no edit is possible now, in one sentence; empty: nothing is in the way.
  void setObstacle(std::function<QString()> obstacle) { obstacle_ = std::move(obstacle); }

  // ---- What is selected: actions of the schedule, without what their pairs add ----
  [[nodiscard]] const std::set<Action>& selection() const { return selection_; }
  enum class Extends : std::uint8_t { No, One, Range };  ///< Range: all of its row from what was selected last
  void select(const Action& action, Extends extends = Extends::No);
  void clearSelection();
  void forgetRefusal();  ///< the reason of the last edit: something else is being done

  // ---- Edits of the selection ----
  void shift(int places);      ///< each in its own row; negative: earlier
  void moveStages(int ranks);  ///< the stages of the actions, to the rank so many further on
  void splitOrMerge();         ///< each B into I and W where there is a B, else I and W into B
  void pairOrUnpair();         ///< an F and a B overlap, or those of overlapped pairs no longer
  void addPause();             ///< an idle cell before each row's first
  void removePauses();         ///< the idle cells right before them
  void swapTwo();              ///< they change places
  void repeat();               ///< their order, for the microbatches that follow
  /// Searches in the background for a faster order from where it is (`improveOrder`); one undo step when it ends.
  void improve();
  void stopImproving();  ///< keeps what it has
  [[nodiscard]] bool isImproving() const { return improving_.isRunning(); }
  /// Why the only selected action does not start earlier: one or two sentences.
  [[nodiscard]] QString whyNotEarlier() const;

  // ---- A drag of one action, or of the selection that it is in ----
  bool beginDrag(const Action& action);
  void dragTo(Rank row, Ns time);  ///< in the timeline as it was when the drag began
  void endDrag(bool keep);
  /// Where the dragged would go.
  struct Drop {
    Rank rank;
    Ns at = 0;  ///< between the actions there, as they were when the drag began
    bool isLegal = true;
    bool movesStage = false;                ///< to another rank
    std::optional<std::pair<Ns, Ns>> room;  ///< of a single action: within which it may go, in its own row
  };
  [[nodiscard]] bool isDragging() const { return drag_ != nullptr; }
  [[nodiscard]] std::optional<Drop> drop() const;

  /// The reason of the last refusal, or that there was nothing to do, until the next action; else what the last edit changed: `Step 9.46
  /// → 10.8 ms (+14 %)`.
  [[nodiscard]] QString message() const;
  [[nodiscard]] bool isRefused() const;                                      ///< the message is a reason
  [[nodiscard]] const std::vector<Action>& cycle() const { return cycle_; }  ///< of the last refusal

 signals:
  void changed();                         ///< on or off, the selection, the message
  void refused(const QString& sentence);  ///< why an edit is not possible

 private:
  struct Dragged;
  [[nodiscard]] std::vector<Cell> cellsOf(const Schedule& schedule, const std::set<Action>& actions) const;
  void apply(const QString& what, const Edit& edit);
  void change(const QString& what, const std::function<Edit(const Schedule&)>& make);
  [[nodiscard]] bool isBlocked();
  void refuse(const Refusal& refusal);
  void say(const QString& sentence);
  void accept(const QString& what, Schedule schedule);
  void keepSelection();
  void forgetReasons();
  void selectFrom(const Action& one, const Action& other);
  [[nodiscard]] bool tryDrop(std::variant<Schedule, Refusal> result);

  Document& document_;
  std::function<QString()> obstacle_;
  bool on_ = false;
  std::set<Action> selection_;
  std::optional<Action> last_;  ///< selected last
  std::unique_ptr<Dragged> drag_;
  std::shared_ptr<const Prediction> earlier_;  ///< before the last change that was not made here
  QString refusal_;
  QString remark_;  ///< in its place: no edit, but nothing wrong either
  std::vector<Action> cycle_;
  std::shared_ptr<std::atomic<bool>> enough_;  ///< of the search in progress
  QString progress_;
  Job improving_;  ///< last: it ends before what it refers to
};

}  // namespace pw::gui
