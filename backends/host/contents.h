#pragma once

#include <string>

namespace pw {

/// A digest of what a file holds, without reading gigabytes: of a zip archive (`.pt2`, torch.save) names below the top folder, sizes and
/// checksums of its entries, as its directory has them; of other files their size and samples spread over the contents. Equal for copies at
/// other paths and times. `weightsOnly`: only the entries of a `.pt2` below data/ that hold tensors. Throws UsageError when the file cannot
/// be read.
[[nodiscard]] std::string contentsOf(const std::string& path, bool weightsOnly = false);

/// Which build of Pipewright this process is: the linkers' build ids of the program and of its modules beside it (`libpw_*.so`); different
/// for another compiler, source or option. Without such ids the program's contents.
[[nodiscard]] std::string buildOf(const std::string& executable);

}  // namespace pw
