#pragma once

// Internal to the import of traces: when the GPU did what torch.profiler's ranges launched.

#include <cstdint>
#include <map>
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
  /// `process`: that launches. Its correlations are unique; those of two processes may be the same numbers. A negative one is none, and
  /// launches and kernels without one are left out.
  void addLaunch(std::int64_t process, std::int64_t correlation, Ns time);
  /// `device`: the process that stands for it in the file.
  void addKernel(std::string_view name, std::int64_t device, std::int64_t correlation, std::int64_t stream, Ns start, Ns end);

  /// Gives the actions that the program annotated the times of the kernels launched in them (`Launches`), in place of such copies, where
  /// most of each process launched any; the others are left out. Where processes share the file, each device is of the process that has the
  /// actions copied to it and launched its kernels, ties by their order; what more than 64 processes did alike does not count. A file with
  /// actions on several threads of a process, or without its launches, keeps the times that it has: of the device, or, where some kind of
  /// action has none there (`hostTimes`), of the program. Throws UsageError for more than `kMaxRanks` processes with actions. Cost: n log
  /// n.
  void apply(FileEvents& file) const;

 private:
  struct Launch {
    std::int64_t process, correlation;
    Ns time;
  };
  struct Kernel {
    KernelKind kind;
    std::int64_t device, correlation, stream;
    Ns start, end;
  };
  /// Which process each device is of, and each kernel; −1 where none launched it.
  struct Owners {
    std::map<std::int64_t, std::int64_t> ofDevices;
    std::vector<std::int64_t> ofKernels;
  };
  [[nodiscard]] Owners ownersIn(const FileEvents& file, const std::map<std::int64_t, Track>& hosts) const;
  bool applyKernels(FileEvents& file) const;

  std::vector<Launch> launches_;
  std::vector<Kernel> kernels_;
};

}  // namespace pw
