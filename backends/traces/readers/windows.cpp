#include "backends/traces/readers/windows.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include <fmt/format.h>

#include "schedules/error.h"

namespace pw {
namespace {

constexpr std::size_t kFront = 64;                     ///< room before the unused bytes, for the `[` of a window
constexpr std::size_t kWindow = std::size_t{1} << 20;  ///< fits a core's cache together with simdjson's index of it
constexpr std::size_t kLargestEvent = std::size_t{256} << 20;
constexpr std::size_t kLongestMember = std::size_t{8} << 20;  ///< distributedInfo lists the process groups of a job
constexpr std::size_t kBlock = 64;
constexpr unsigned kZippedBuffer = 256U << 10U;

bool isBlank(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

/// One bit for each of 64 characters.
struct Marks {
  std::uint64_t quotes = 0, backslashes = 0, opening = 0, closing = 0;
};

#ifdef __SSE2__
Marks marksOf(const char* at) {
  Marks marks;
  const auto bits = [](__m128i equal) { return static_cast<std::uint64_t>(static_cast<unsigned>(_mm_movemask_epi8(equal))); };
  for (std::size_t i = 0; i < 4; ++i) {
    const __m128i text = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at + 16 * i));
    const __m128i folded = _mm_or_si128(text, _mm_set1_epi8(0x20));  // [ and { differ in this bit only, as ] and } do
    marks.quotes |= bits(_mm_cmpeq_epi8(text, _mm_set1_epi8('"'))) << (16 * i);
    marks.backslashes |= bits(_mm_cmpeq_epi8(text, _mm_set1_epi8('\\'))) << (16 * i);
    marks.opening |= bits(_mm_cmpeq_epi8(folded, _mm_set1_epi8('{'))) << (16 * i);
    marks.closing |= bits(_mm_cmpeq_epi8(folded, _mm_set1_epi8('}'))) << (16 * i);
  }
  return marks;
}
#else
Marks marksOf(const char* at) {
  Marks marks;
  for (std::size_t i = 0; i < kBlock; ++i) {
    const std::uint64_t bit = std::uint64_t{1} << i;
    if (at[i] == '"') marks.quotes |= bit;
    if (at[i] == '\\') marks.backslashes |= bit;
    if (at[i] == '{' || at[i] == '[') marks.opening |= bit;
    if (at[i] == '}' || at[i] == ']') marks.closing |= bit;
  }
  return marks;
}
#endif

/// Bit i: whether an odd number of the bits 0 … i is set.
std::uint64_t parities(std::uint64_t bits) {
  for (int shift = 1; shift < 64; shift *= 2) bits ^= bits << shift;
  return bits;
}

}  // namespace

void BracketScan::one(char c, std::size_t offset, Found& found) {
  if (escaped) {
    escaped = false;
  } else if (inString) {
    escaped = c == '\\';
    inString = c != '"';
  } else if (c == '"') {
    inString = true;
  } else if (c == '{' || c == '[') {
    ++depth;
  } else if (c == '}' || c == ']') {
    --depth;
    if (depth == 0) found.cut = offset + 1;
    if (depth < 0) found.end = offset;
  }
}

void BracketScan::block(const char* at, std::size_t offset, Found& found) {
  const Marks marks = marksOf(at);
  if (escaped || marks.backslashes != 0) {
    for (std::size_t i = 0; i < kBlock && found.end == std::string::npos; ++i) one(at[i], offset + i, found);
    return;
  }
  const std::uint64_t strings = parities(marks.quotes) ^ (inString ? ~std::uint64_t{0} : 0);
  inString = (strings >> 63U) != 0;
  const std::uint64_t opening = marks.opening & ~strings, closing = marks.closing & ~strings;
  const int closes = std::popcount(closing);
  if (depth > closes) {  // depth 0 is out of reach
    depth += std::popcount(opening) - closes;
    return;
  }
  for (std::uint64_t rest = opening | closing; rest != 0 && found.end == std::string::npos; rest &= rest - 1) {
    const auto i = static_cast<std::size_t>(std::countr_zero(rest));
    depth += (opening >> i & 1U) != 0 ? 1 : -1;
    if (depth == 0) found.cut = offset + i + 1;
    if (depth < 0) found.end = offset + i;
  }
}

BracketScan::Found BracketScan::scan(std::string_view text) {
  Found found;
  std::size_t at = 0;
  for (; at + kBlock <= text.size() && found.end == std::string::npos; at += kBlock) block(text.data() + at, at, found);
  for (; at < text.size() && found.end == std::string::npos; ++at) one(text[at], at, found);
  return found;
}

EventWindows::EventWindows(const std::string& path) : path_(path), capacity_(kFront + kWindow) {
  file_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat facts {};
  if (file_ < 0 || fstat(file_, &facts) != 0 || !S_ISREG(facts.st_mode)) {
    const std::string problem = file_ < 0 || facts.st_mode == 0 ? std::strerror(errno) : "it is not a file";
    if (file_ >= 0) close(file_);
    throw UsageError(fmt::format("{} cannot be read: {}; check the path and its permissions", path, problem));
  }
  size_ = static_cast<std::uint64_t>(std::max<off_t>(0, facts.st_size));
  buffer_ = std::make_unique_for_overwrite<char[]>(capacity_ + kPadding);
  begin_ = scanned_ = end_ = kFront;
  std::array<char, 2> magic{};
  if (::pread(file_, magic.data(), magic.size(), 0) == 2 && magic[0] == '\x1f' && magic[1] == '\x8b') {
    zipped_ = gzdopen(file_, "rb");  // which closes the file
    if (zipped_ == nullptr) {
      close(file_);
      throw UsageError(fmt::format("{} cannot be read: there is not enough memory to unpack it", path_));
    }
    gzbuffer(zipped_, kZippedBuffer);
  }
}

EventWindows::~EventWindows() { zipped_ != nullptr ? gzclose(zipped_) : close(file_); }

/// As read(2). The end of a compressed file that was cut off is its end.
std::ptrdiff_t EventWindows::readSome(char* into, std::size_t room) {
  if (zipped_ == nullptr) {
    const ssize_t got = ::read(file_, into, room);
    read_ += static_cast<std::uint64_t>(std::max<ssize_t>(0, got));
    return got;
  }
  const int got = gzread(zipped_, into, static_cast<unsigned>(std::min(room, kWindow)));
  if (const auto at = gzoffset(zipped_); at > 0) read_ = static_cast<std::uint64_t>(at);
  int problem = Z_OK;
  const char* const words = gzerror(zipped_, &problem);
  if (got >= 0 || problem == Z_BUF_ERROR) return std::max(0, got);
  if (problem == Z_ERRNO) return -1;
  throw UsageError(fmt::format("{} is a damaged gzip file ({}); pack it again, or open the JSON file", path_, words));
}

bool EventWindows::fill() {
  while (end_ < capacity_ && !atEnd_) {
    const std::ptrdiff_t got = readSome(buffer_.get() + end_, capacity_ - end_);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw UsageError(fmt::format("{} cannot be read beyond byte {}: {}; check the disk", path_, read_, std::strerror(errno)));
    atEnd_ = got == 0;
    end_ += static_cast<std::size_t>(got);
  }
  return end_ > scanned_;
}

void EventWindows::grow() {
  if (capacity_ >= kLargestEvent) {
    throw UsageError(fmt::format("{} has a single event of more than {} MiB before byte {}; it is not a trace this program can read", path_,
                                 kLargestEvent >> 20U, read_));
  }
  const std::size_t unused = end_ - begin_;
  const std::size_t larger = std::min(kLargestEvent, 2 * capacity_);
  auto buffer = std::make_unique_for_overwrite<char[]>(larger + kPadding);
  std::memcpy(buffer.get() + kFront, buffer_.get() + begin_, unused);
  buffer_ = std::move(buffer);
  capacity_ = larger;
  scanned_ = kFront + (scanned_ - begin_);
  begin_ = kFront;
  end_ = kFront + unused;
}

void EventWindows::start() {
  fill();
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (std::string_view(buffer_.get() + begin_, end_ - begin_).starts_with(kByteOrderMark)) begin_ += kByteOrderMark.size();
  while (begin_ < end_ && isBlank(buffer_[begin_])) ++begin_;
  if (begin_ == end_ || (buffer_[begin_] != '[' && buffer_[begin_] != '{')) {
    throw UsageError(fmt::format("{} is {}; a trace is a JSON object with traceEvents, or an array of events", path_,
                                 size_ == 0 ? "empty" : "not JSON"));
  }
  phase_ = buffer_[begin_] == '[' ? Phase::Events : Phase::Members;
  hasEvents_ = bare_ = phase_ == Phase::Events;
  scan_ = {};
  scanned_ = ++begin_;
}

void EventWindows::endMember() {
  const std::size_t colon = member_.find("\":");
  const std::string name = colon == std::string::npos ? "" : member_.substr(1, colon - 1);
  if (!memberTooLong_ && (name == "baseTimeNanoseconds" || name == "distributedInfo")) members_[name] = member_.substr(colon + 2);
  member_.clear();
  memberTooLong_ = false;
}

void EventWindows::readMembers() {
  while (fill()) {
    for (; scanned_ < end_; ++scanned_) {
      const char c = buffer_[scanned_];
      const bool outside = !scan_.inString && scan_.depth == 0;
      if (outside && c == '[' && member_ == "\"traceEvents\":") {
        phase_ = Phase::Events;
        hasEvents_ = true;
        scan_ = {};
        member_.clear();
        begin_ = ++scanned_;
        return;
      }
      BracketScan::Found found;
      scan_.one(c, 0, found);
      if (found.end != std::string::npos) phase_ = Phase::Done;
      if (phase_ == Phase::Done || (outside && c == ',')) endMember();
      if (phase_ == Phase::Done) return;
      if ((outside && c == ',') || (!scan_.inString && isBlank(c))) continue;
      memberTooLong_ = memberTooLong_ || member_.size() >= kLongestMember;
      if (!memberTooLong_) member_ += c;
    }
    begin_ = scanned_ = end_ = kFront;
    return;  // so that the caller can report progress
  }
  truncated_ = true;
  phase_ = Phase::Done;
}

std::string_view EventWindows::window(std::size_t end) {
  const auto between = [](char c) { return isBlank(c) || c == ','; };
  std::size_t first = begin_;
  while (first < end && between(buffer_[first])) ++first;
  std::size_t last = end;
  while (last > first && between(buffer_[last - 1])) --last;
  begin_ = end;
  if (first == last) return {};
  buffer_[first - 1] = '[';
  behind_ = last;
  overwritten_ = buffer_[last];
  buffer_[last] = ']';
  return {buffer_.get() + first - 1, last - first + 2};
}

std::string_view EventWindows::nextWindow() {
  while (true) {
    fill();
    // Whole blocks only, until nothing follows.
    const std::size_t fresh = atEnd_ ? end_ - scanned_ : (end_ - scanned_) / kBlock * kBlock;
    const BracketScan::Found found = scan_.scan({buffer_.get() + scanned_, fresh});
    if (found.cut != 0) cut_ = scanned_ + found.cut;
    if (found.end != std::string::npos) {
      const std::size_t end = scanned_ + found.end;
      phase_ = bare_ ? Phase::Done : Phase::Members;
      scan_ = {};
      member_.clear();
      memberTooLong_ = true;  // the array's own
      const std::string_view events = window(end);
      begin_ = scanned_ = end + 1;
      cut_ = 0;
      return events;
    }
    scanned_ += fresh;
    if (atEnd_) {
      truncated_ = true;
      phase_ = Phase::Done;
      return cut_ != 0 ? window(cut_) : std::string_view{};
    }
    if (cut_ != 0) return window(cut_);
    grow();
  }
}

void EventWindows::replaceBeyondAscii(std::string_view events) {
  char* begin = buffer_.get() + (events.data() - buffer_.get());
  std::replace_if(
      begin, begin + events.size(), [](char c) { return (static_cast<unsigned char>(c) & 0x80U) != 0; }, '?');
}

bool EventWindows::next(std::string_view& events) {
  events = {};
  if (behind_ != 0) buffer_[behind_] = overwritten_;
  behind_ = 0;
  if (phase_ == Phase::Start) start();
  if (phase_ == Phase::Done) return false;
  if (phase_ == Phase::Members) {
    readMembers();
    return true;
  }
  if (begin_ > kFront) {  // what the last window left begins with a part of an event
    const std::size_t unused = end_ - begin_;
    std::memmove(buffer_.get() + kFront, buffer_.get() + begin_, unused);
    scanned_ = kFront + (scanned_ - begin_);
    begin_ = kFront;
    end_ = kFront + unused;
  }
  cut_ = 0;
  events = nextWindow();
  return true;
}

}  // namespace pw
