#pragma once

#include <string>
#include <vector>

namespace pw::cli {

/// Starts a program (`words`: its path and its arguments) with this one's environment, streams and group, and waits for its end, without a
/// limit: what is run so has limits of its own. SIGTERM is passed on, and Ctrl-C in the terminal reaches it as well; if it has not ended 10
/// s later it gets SIGTERM, and after 10 s more SIGKILL. It never outlives this process. Returns its exit status; of one that a signal
/// ended, that of a negative answer. Throws Error where it cannot be started.
[[nodiscard]] int runAndWait(std::vector<std::string> words);

}  // namespace pw::cli
