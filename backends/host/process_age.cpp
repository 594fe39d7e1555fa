#include "backends/host/process_age.h"

#include <unistd.h>

#include <cstdint>
#include <ctime>
#include <fstream>
#include <sstream>
#include <string>

namespace pw {

Ns processAge() {
  std::ifstream stat("/proc/self/stat");
  std::string text;
  std::getline(stat, text);
  const std::size_t name = text.rfind(')');  // the program's name may hold spaces
  if (name == std::string::npos) return 0;
  constexpr int kFirst = 3, kStart = 22;  // proc(5): field 22, in clock ticks since the machine started
  std::istringstream fields(text.substr(name + 2));
  std::string skipped;
  for (int i = kFirst; i < kStart; ++i) fields >> skipped;
  std::int64_t ticks = 0;
  timespec now{};
  if (!(fields >> ticks) || ::clock_gettime(CLOCK_BOOTTIME, &now) != 0) return 0;
  constexpr std::int64_t kSecond = 1'000'000'000;
  return Ns(now.tv_sec * kSecond + now.tv_nsec - ticks * (kSecond / ::sysconf(_SC_CLK_TCK)));
}

}  // namespace pw
