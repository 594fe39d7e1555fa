#include "backends/host/random_bytes.h"

#include <sys/random.h>
#include <sys/types.h>

#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "schedules/error.h"

namespace pw {

std::string randomBytes(std::size_t count) {
  std::string bytes(count, '\0');
  for (std::size_t at = 0; at < count;) {
    const ssize_t got = ::getrandom(bytes.data() + at, count - at, 0);
    if (got < 0 && errno != EINTR)
      throw Error(fmt::format("This system gives no random numbers ({}); see getrandom(2).", std::strerror(errno)));
    if (got > 0) at += static_cast<std::size_t>(got);
  }
  return bytes;
}

}  // namespace pw
