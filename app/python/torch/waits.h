#pragma once

#include <functional>
#include <memory>

#include "engine/remote/call_threads.h"
#include "engine/remote/future.h"

namespace pw::python {

/// Waits for a result; Python may run meanwhile. On the main thread a signal of Python's ends the wait, and is raised. Throws what ended
/// the call. Needs the GIL.
[[nodiscard]] RemoteValue waitFor(const RemoteFuture& result);

/// While copies of it live, somebody may still set the result; then it ends with an error, so that nobody waits for what was dropped.
[[nodiscard]] std::shared_ptr<void> promise(const RemoteFuture& result);

/// Runs something that waits, likewise. After a signal it still runs on a thread of `threads`, so it must own what it uses.
RemoteValue runWaiting(CallThreads& threads, std::function<RemoteValue()> run);

}  // namespace pw::python
