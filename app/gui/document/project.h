#pragma once

#include <QStringList>
#include <string>

#include "app/gui/document/loading.h"

namespace pw::gui {

/// A project's text, and back. The model's archives are named, not copied; profile, custom schedule and costs are inside. `parseProject`
/// throws UsageError for text that is not a project or of a newer version.
struct Project {
  Design design;
  QString store;
  QByteArray view;
  JobOptions job = {};          ///< read: what the design's job is to be read from; written: that of `design.job`
  bool isInOrderOfJob = false;  ///< read: the rows are the job's own, which no generator makes
};
[[nodiscard]] std::string toJson(const Project& project);
[[nodiscard]] Project parseProject(std::string_view json, const std::string& source);

}  // namespace pw::gui
