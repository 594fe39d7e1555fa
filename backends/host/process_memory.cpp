#include "backends/host/process_memory.h"

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <utility>

namespace pw {

Bytes residentPeak() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return static_cast<Bytes>(std::atoll(line.c_str() + 6)) * 1024;
  }
  return 0;
}

namespace {

struct Code {
  Bytes mapped = 0;
  Bytes resident = 0;  ///< by smaps; maps does not tell it
};

/// Code without a file. A mapping is a line of from-to, permissions, offset, device, inode (0: no file) and a name, if any; in smaps, lines
/// of its figures follow.
Code generatedCode(const char* table) {
  std::ifstream maps(table);
  Code code;
  bool isCode = false;
  for (std::string line; std::getline(maps, line);) {
    unsigned long long from = 0, to = 0, inode = 0, kilobytes = 0;
    char permissions[5] = "", name[2] = "";
    const int read = std::sscanf(line.c_str(), "%llx-%llx %4s %*x %*x:%*x %llu %1s", &from, &to, permissions, &inode, name);
    if (read >= 4) {
      isCode = read == 4 && inode == 0 && permissions[2] == 'x';
      if (isCode) code.mapped += Bytes(to - from);
    } else if (isCode && std::sscanf(line.c_str(), "Rss: %llu kB", &kilobytes) == 1) {
      code.resident += Bytes(kilobytes * 1024);
    }
  }
  return code;
}

}  // namespace

Bytes CodeWatch::resident() {
  std::ifstream statm("/proc/self/statm");
  std::int64_t size = 0, resident = 0, shared = 0;
  if (!(statm >> size >> resident >> shared)) return 0;
  if (std::exchange(mapped_, size) != size) {
    const Bytes code = generatedCode("/proc/self/maps").mapped;
    if (std::exchange(mappedCode_, code) != code) generated_ = generatedCode("/proc/self/smaps").resident;
  }
  return Bytes(shared * sysconf(_SC_PAGESIZE)) + generated_;
}

}  // namespace pw
