#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backends/messages/waits.h"
#include "backends/stages/batch_feed.h"

namespace pw {

/// Whether `--data` names a Python function, `module:function`, and not a file.
[[nodiscard]] bool namesFunction(const std::string& data);

/// Which batches of a Python function a rank reads, and how long it waits for one.
struct StreamRequest {
  std::string function;                             ///< `module:function`; returns an iterable of batches
  int firstStep = 0;                                ///< so many batches are left out
  std::uint64_t seed = 0;                           ///< of Python's and torch's random numbers
  std::vector<std::string> inputs;                  ///< the model's, for batches that are tuples
  std::chrono::milliseconds deadline = kUsualWait;  ///< for each batch
};

/// The batches that a function gives to a process of Python, one for each step from the first on; that process begins now and ends with
/// this one, or with the last copy of the result. Python is $PIPEWRIGHT_PYTHON, else that of the active environment, else the python3 in
/// PATH. `BatchFeed::batch` throws UsageError where the function cannot be called, fails or has given its last batch, and Error where none
/// comes within the deadline. Loads LibTorch.
[[nodiscard]] std::shared_ptr<const BatchFeed> streamBatches(const StreamRequest& request);

}  // namespace pw
