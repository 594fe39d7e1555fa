#include "backends/messages/channel/waker.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

#include "schedules/error.h"

namespace pw {

Waker::Waker() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (fd_.get() < 0) throw Error("the system gives no descriptor to wait with; raise the limit of open files (ulimit -n)");
}

void Waker::wake() const {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(fd_.get(), &one, sizeof one);  // at its limit it is readable anyway
}

void Waker::clear() const {
  std::uint64_t count = 0;
  [[maybe_unused]] const auto got = ::read(fd_.get(), &count, sizeof count);
}

}  // namespace pw
