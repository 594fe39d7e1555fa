#pragma once

#include <QString>
#include <string>

namespace pw::gui {

/// A cluster's name for display: that of `loadCluster`, a file without its folder, or of a cluster edited here what it is called.
[[nodiscard]] QString clusterTitle(const std::string& nameOrFile);

}  // namespace pw::gui
