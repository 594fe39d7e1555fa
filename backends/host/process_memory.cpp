#include "backends/host/process_memory.h"

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>

namespace pw {

Bytes residentPeak() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return static_cast<Bytes>(std::atoll(line.c_str() + 6)) * 1024;
  }
  return 0;
}

Bytes residentOfFiles() {
  std::ifstream statm("/proc/self/statm");
  std::int64_t size = 0, resident = 0, shared = 0;
  return statm >> size >> resident >> shared ? Bytes(shared * sysconf(_SC_PAGESIZE)) : Bytes(0);
}

}  // namespace pw
