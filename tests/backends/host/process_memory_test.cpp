#include "backends/host/process_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <stdexcept>

#include <gtest/gtest.h>

namespace pw {
namespace {

/// Anonymous pages, unmapped at the end.
class Pages {
 public:
  Pages(std::size_t count, int protection)
      : size_(count * static_cast<std::size_t>(sysconf(_SC_PAGESIZE))),
        at_(mmap(nullptr, size_, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    if (at_ == MAP_FAILED) throw std::runtime_error("no such pages");
    madvise(at_, size_, MADV_NOHUGEPAGE);  // of which one touched page would bring 512
  }
  ~Pages() { munmap(at_, size_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  [[nodiscard]] Bytes write(std::size_t count) {
    const std::size_t bytes = count * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    std::memset(at_, 1, bytes);
    return Bytes(static_cast<std::int64_t>(bytes));
  }

 private:
  std::size_t size_;
  void* at_;
};

TEST(CodeWatch, CountsGeneratedCodeThatIsResidentAndNoData) {
  CodeWatch watch;
  Pages first(1, PROT_READ | PROT_WRITE | PROT_EXEC);  // so that all of the watch has run
  static_cast<void>(first.write(1));
  const Bytes before = watch.resident();
  ASSERT_GT(before, 0);
  Pages data(2000, PROT_READ | PROT_WRITE);
  const Bytes ofData = data.write(2000);
  const Bytes withData = watch.resident();
  Pages code(2000, PROT_READ | PROT_WRITE | PROT_EXEC);
  const Bytes ofCode = code.write(1000);
  const Bytes withCode = watch.resident();
  const Bytes slack = ofCode / 5;  // pages of this program, touched for the first time or taken away
  EXPECT_LT(withData - before, slack) << "of " << ofData;
  EXPECT_GT(withCode - withData, ofCode - slack);
  EXPECT_LT(withCode - withData, ofCode + slack);
  EXPECT_GE(residentPeak(), withCode);
}

}  // namespace
}  // namespace pw
