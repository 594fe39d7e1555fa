#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>

#include "engine/remote/call_threads.h"
#include "engine/remote/future.h"

namespace pw::python {

/// Waits for a result; Python may run meanwhile. On the main thread a signal of Python's ends the wait, and is raised. Throws what ended
/// the call, and Error where the worker ends, on a thread of its own, or nothing came until then. Needs the GIL.
[[nodiscard]] RemoteValue waitFor(const RemoteFuture& result, std::optional<std::chrono::steady_clock::time_point> until = std::nullopt);

/// While copies of it live, somebody may still set the result; then it ends with an error, so that nobody waits for what was dropped.
[[nodiscard]] std::shared_ptr<void> promise(const RemoteFuture& result);

/// Runs something that waits on a thread of its own, likewise. After a signal it still runs to its end, so it must own what it uses.
RemoteValue runApart(std::function<RemoteValue()> run);
/// Runs something that waits, likewise. After a signal it still runs on a thread of `threads`, so it must own what it uses.
RemoteValue runWaiting(CallThreads& threads, std::function<RemoteValue()> run);

}  // namespace pw::python
