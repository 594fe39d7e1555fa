#include "backends/host/process_memory.h"

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

}  // namespace pw
