#pragma once

#include <string>
#include <vector>

namespace pw::cli {

/// Starts a program (`words`: its path and its arguments) with this one's environment, streams and group, so that Ctrl-C in the terminal
/// ends both, and waits for its end, without a limit: what is run so has limits of its own. Returns its exit status; of one that a signal
/// ended, that of a negative answer. Throws Error where it cannot be started.
[[nodiscard]] int runAndWait(std::vector<std::string> words);

}  // namespace pw::cli
