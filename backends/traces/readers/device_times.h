#pragma once

// Internal to the import of traces: when the GPU did what torch.profiler's ranges launched.

#include <cstdint>
#include <string_view>
#include <vector>

#include "backends/traces/events/events.h"
#include "backends/traces/readers/launches.h"

namespace pw {

/// Kineto copies a range to the device's streams (`gpu_user_annotation`), with the kernels that its own thread launched. A backward's are
/// launched by autograd's thread, so that backwards have no copy, or one of some last kernels (pytorch/kineto#1132); which range was open
/// when a kernel was launched says more.
class DeviceTimes {
 public:
  void addLaunch(std::int64_t correlation, Ns time);
  void addKernel(std::string_view name, std::int64_t correlation, std::int64_t stream, Ns start, Ns end);

  /// Gives the actions that the program annotated the times of the kernels launched in them (`Launches`), in place of such copies, where
  /// most launched any; the others are left out. A file with actions on several threads stays as it is. Cost: n log n.
  void apply(FileEvents& file) const;

 private:
  struct Launch {
    std::int64_t correlation;
    Ns time;
  };
  struct Kernel {
    KernelKind kind;
    std::int64_t correlation, stream;
    Ns start, end;
  };
  std::vector<Launch> launches_;
  std::vector<Kernel> kernels_;
};

}  // namespace pw
