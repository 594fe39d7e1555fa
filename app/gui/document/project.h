#pragma once

#include <QStringList>
#include <optional>
#include <string>

#include "app/gui/document/loading.h"
#include "app/gui/document/pinned_plans.h"

namespace pw::gui {

/// What a project that is kept until it is saved (app/gui/window/autosave.h) is of.
struct UnsavedProject {
  QString title;  ///< of the document
  QString file;   ///< the project that the changes are of; empty: it was never saved
};

/// A project's text, and back. The model's archives are named, not copied; profile, custom schedule and costs are inside. `parseProject`
/// throws UsageError for text that is not a project or of a newer version.
struct Project {
  Design design;
  QString store;
  QByteArray view;
  std::vector<PinnedPlan> pins = {};    ///< custom rows of their designs, and their job, are not in the text
  JobOptions job = {};                  ///< read: what the design's job is to be read from; written: that of `design.job`
  bool isInOrderOfJob = false;          ///< read: the rows are the job's own, which no generator makes
  std::vector<std::string> trace = {};  ///< absolute paths of the trace that is shown; empty: none
  int step = 0;                         ///< of the trace, from 0; or of the run
  std::optional<RunName> run = {};      ///< of the store, that is shown instead of a trace
  std::optional<UnsavedProject> unsaved = {};
};

/// The shown step of a trace, or of a run in the project's store, as a project names it; of a pinned plan or a job's usual step it names
/// none.
void nameTrace(Project& project, const Measured* shown);

/// Whether a project keeps a pinned plan: its step has at most 100,000 spans, which are about 6 MB there, and its
/// order is not that of a job, which no generator makes.
[[nodiscard]] bool isKept(const PinnedPlan& plan);
[[nodiscard]] std::string toJson(const Project& project);
[[nodiscard]] Project parseProject(std::string_view json, const std::string& source);

}  // namespace pw::gui
