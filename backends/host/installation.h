#pragma once

#include <optional>
#include <string>
#include <vector>

namespace pw {

/// Path of this program. In a Python process that has loaded our module it is the program that came with the module: `bin/pipewright`
/// beside it (installed), or of its build folder. Throws Error where /proc is not mounted, or the module's program is missing.
[[nodiscard]] std::string ownPath();

/// The prefix that this program was installed to: `/usr` of `/usr/bin/pipewright`. Nothing for a program in its build folder.
[[nodiscard]] std::optional<std::string> installPrefix();

/// Paths at which a shared library of ours may be, the first choice first: `../lib/pipewright` beside the program (installed), `../lib`
/// (built) and the program's own folder.
[[nodiscard]] std::vector<std::string> moduleCandidates(const std::string& file);

/// The first of them that exists; nothing where there is none. The module is not loaded.
[[nodiscard]] std::optional<std::string> modulePath(const std::string& file);

/// `share/pipewright` of the installed program, or `resources` beside the build folder; $PIPEWRIGHT_RESOURCES comes first.
[[nodiscard]] std::string resourceFolder();

}  // namespace pw
