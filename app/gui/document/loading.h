#pragma once

#include <QStringList>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/gui/document/document.h"
#include "app/gui/document/pinned_plans.h"

namespace pw::hang {
struct Dumps;
}

namespace pw::gui {

/// What was loaded from files, ready for `Document::adopt` and the window.
struct Loaded {
  QString title;
  bool hasDesign = false;  ///< otherwise only `measured`, `store` or `cluster` is new and the design is unchanged
  Design design;
  std::shared_ptr<const ModelGraph> graph;
  std::vector<SplitPoint> splitPoints;
  std::vector<std::shared_ptr<const Measured>> measured;  ///< of a trace: its steps
  std::size_t chosen = 0;                                 ///< of them: a typical step
  std::shared_ptr<const Schedule> schedule;               ///< of a schedule's file: its compute actions, which the open model may use, too
  QString store;
  std::optional<RunName> run;                ///< of that store, that a project shows
  int runStep = 0;                           ///< of that run
  QString study;                             ///< path of a study's results
  QString cluster;                           ///< path of a cluster to estimate for
  std::vector<std::string> otherClusters;    ///< for `loadCluster`: a model planned for a preset could as well be planned for these
  QString project;                           ///< path of the project file that it is saved to; empty: none yet
  std::vector<PinnedPlan> pins;              ///< of a project
  QByteArray view;                           ///< of a project: the timeline's and the window's
  std::shared_ptr<const hang::Dumps> dumps;  ///< of a job that hangs; see dumps.h
  std::shared_ptr<const Schedule> ran;       ///< what it ran, as the schedule beside the dumps says; null: what is open
  QStringList notes;                         ///< notes for the user, one sentence each
};

/// Reads a model (.pt2, or several: parts in order), layer table or job (.json, .csv), plan or trace (.json), schedule (.csv), run store or
/// study (.db), project (.pwproj), a cluster (.json), a folder of traces, or dumps of a job that hangs, recognised by content if the name
/// is not enough. Throws Error in one sentence; changes nothing. A model is planned for `cluster`, that used last, or for that among
/// `paths`; empty: for the smallest preset that holds it (`firstPlan`). For a job: `progress(done, all)` returns false to stop, and the
/// result is null.
[[nodiscard]] std::shared_ptr<Loaded> loadFiles(const std::vector<std::string>& paths,
                                                const std::function<bool(std::int64_t, std::int64_t)>& progress,
                                                const std::string& cluster = {});

/// Stages the design's schedule has on its ranks: those of the custom rows, or of a drawn schedule, otherwise ranks × chunks.
[[nodiscard]] int stagesOf(const Design& design);
/// Makes the costs of a design without a model from such times, for the stages that its schedule has.
void setDefaultTimes(Design& design, const DefaultTimes& times);

}  // namespace pw::gui
