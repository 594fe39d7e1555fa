#pragma once

#include <cstdint>

#include "schedules/ids.h"

namespace pw {

/// The most of this process that was resident in memory since its program began (VmHWM of proc(5)); 0 where the system does not say.
[[nodiscard]] Bytes residentPeak();

/// Watches what a process maps to run code: pages of mapped files (code and tables of libraries) and of shared memory that are resident,
/// and code generated at run time (anonymous executable mappings, as oneDNN makes one for each form of a convolution) as it was when such
/// mappings changed last.
class CodeWatch {
 public:
  /// Bytes by now (statm, maps and smaps of proc(5)); 0 where the system does not say. Cost: 10 µs; where mappings changed since the last
  /// call linear in their number (about 1 ms), and where code did in resident pages, too (about 5 ms).
  [[nodiscard]] Bytes resident();

 private:
  std::int64_t mapped_ = 0;  // pages of any kind
  Bytes mappedCode_ = 0;     // without a file
  Bytes generated_ = 0;      // what is resident of it
};

}  // namespace pw
