#include "engine/live_spans.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "schedules/error.h"
#include "simulator/trace/span_kind.h"

namespace pw {
namespace {

constexpr off_t kLargestFile = off_t{1} << 30;
constexpr std::size_t kLongestLine = std::size_t{64} << 20;
constexpr std::size_t kMostOfItem = 256;  ///< characters of one span: a name, seven numbers of at most 20, and what stands between
constexpr std::int32_t kMostStages = 1 << 20, kMostMicrobatches = 1 << 24;
// So that no sum over the spans of a step overflows, whatever the file says.
constexpr Ns kLatest = Ns{1} << 60, kLongestSpan = Ns{1} << 43 /* 2.4 h */, kMostApart = Ns{1} << 49 /* 6 days */;
constexpr Bytes kMostBytes = Bytes{1} << 40;

char* put(char* at, std::string_view text) {
  std::memcpy(at, text.data(), text.size());
  return at + text.size();
}

char* put(char* at, std::int64_t number) {
  if (number >= 0 && number < 10) {  // most are
    *at = static_cast<char>('0' + number);
    return at + 1;
  }
  if (number > 0 && number <= std::numeric_limits<std::uint32_t>::max())
    return std::to_chars(at, at + 20, static_cast<std::uint32_t>(number)).ptr;  // twice as fast
  return std::to_chars(at, at + 20, number).ptr;
}

/// Parses a line from left to right; after the first error nothing more is accepted.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : at_(text.data()), end_(text.data() + text.size()) {}

  [[nodiscard]] bool ok() const { return ok_; }
  [[nodiscard]] bool atEnd() const { return ok_ && at_ == end_; }

  /// Consumes this text if it comes next; returns whether it did.
  bool tries(std::string_view text) {
    if (!ok_ || static_cast<std::size_t>(end_ - at_) < text.size() || std::memcmp(at_, text.data(), text.size()) != 0) return false;
    at_ += text.size();
    return true;
  }
  void expect(std::string_view text) { ok_ = tries(text) && ok_; }

  template <class Int>
  Int number(Int least, Int most) {
    Int value = 0;
    if (ok_) {
      const auto [end, problem] = std::from_chars(at_, end_, value);
      ok_ = problem == std::errc() && value >= least && value <= most;
      at_ = end;
    }
    return ok_ ? value : least;  // a valid number, as callers compute with it even if the line is refused
  }

  SpanKind kind() {
    expect("\"");
    const auto* quote = ok_ ? static_cast<const char*>(std::memchr(at_, '"', static_cast<std::size_t>(end_ - at_))) : nullptr;
    if (quote != nullptr) {
      const std::string_view word(at_, static_cast<std::size_t>(quote - at_));
      at_ = quote + 1;
      if (const auto kind = valueNamed<SpanKind>(word)) return *kind;
    }
    ok_ = false;
    return SpanKind::Forward;
  }

  /// `[item,item,…]`.
  template <class Item>
  void list(Item item) {
    expect("[");
    if (tries("]")) return;
    do item();
    while (tries(","));
    expect("]");
  }

 private:
  const char* at_;
  const char* end_;
  bool ok_ = true;
};

Span readSpan(Scanner& scanner, Ns from, std::int32_t ranksOfPipeline) {
  Span span;
  scanner.expect("[");
  span.kind = scanner.kind();
  const auto next = [&](std::int32_t least, std::int32_t most) {
    scanner.expect(",");
    return scanner.number<std::int32_t>(least, most);
  };
  const auto nextLarge = [&](std::int64_t least, std::int64_t most) {
    scanner.expect(",");
    return scanner.number<std::int64_t>(least, most);
  };
  span.rank = Rank(next(0, ranksOfPipeline - 1));
  span.stage = Stage(next(-1, kMostStages));
  span.microbatch = Microbatch(next(-1, kMostMicrobatches));
  span.peer = Rank(next(0, ranksOfPipeline - 1));
  span.bytes = Bytes(nextLarge(0, kMostBytes.value));
  const Ns start(nextLarge(-kMostApart.value, kMostApart.value));
  span.start = from + start;
  span.end = from + Ns(nextLarge(start.value, (start + kLongestSpan).value));
  scanner.expect("]");
  return span;
}

}  // namespace

LiveWriter::LiveWriter(const std::string& path, JobRank rank, Ns interval)
    : fd_(::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666)), rank_(rank), interval_(interval) {
  if (fd_ < 0)
    throw Error(fmt::format("Cannot write the live file {} ({}); use --live with a path in an existing writable folder.", path,
                            std::strerror(errno)));
}

LiveWriter::~LiveWriter() {
  if (fd_ >= 0) ::close(fd_);
}

void LiveWriter::begin(int step) {
  step_ = step;
  spans_ = samples_ = 0;
  written_ = monotonicNow();
}

void LiveWriter::write(const StepLog& log, bool done) {
  if (fd_ < 0) return;
  const std::size_t items = (log.spans.size() - spans_) + (log.memory.size() - samples_) + 2;
  if (line_.size() < items * kMostOfItem) line_.resize(items * kMostOfItem);
  const Ns from = spans_ < log.spans.size() ? log.spans[spans_].start : samples_ < log.memory.size() ? log.memory[samples_].time : 0;
  char* at = line_.data();  // a local variable, so that stores through it cannot alias our members
  if (cut_) at = put(at, "\n");
  at = put(put(at, "{\"rank\":"), std::int64_t{rank_.value});
  at = put(put(at, ",\"step\":"), std::int64_t{step_});
  at = put(put(at, ",\"from\":"), from.value);
  at = put(at, ",\"spans\":[");
  for (bool first = true; spans_ < log.spans.size(); ++spans_, first = false) {
    const Span& span = log.spans[spans_];
    at = put(put(put(at, first ? "[\"" : ",[\""), nameOf(span.kind)), "\"");
    for (const std::int64_t number :
         {std::int64_t{span.rank.value}, std::int64_t{span.stage.value}, std::int64_t{span.microbatch.value}, std::int64_t{span.peer.value},
          span.bytes.value, (span.start - from).value, (span.end - from).value}) {
      *at++ = ',';
      at = put(at, number);
    }
    *at++ = ']';
  }
  at = put(at, "],\"memory\":[");
  for (bool first = true; samples_ < log.memory.size(); ++samples_, first = false) {
    at = put(put(at, first ? "[" : ",["), (log.memory[samples_].time - from).value);
    *at++ = ',';
    at = put(at, log.memory[samples_].bytes.value);
    *at++ = ']';
  }
  at = put(at, done ? "],\"done\":true}\n" : "],\"done\":false}\n");
  struct stat file {};
  const bool fits = ::fstat(fd_, &file) == 0 && file.st_size < kLargestFile;
  const auto size = static_cast<std::size_t>(at - line_.data());
  const ssize_t count = fits ? ::write(fd_, line_.data(), size) : -1;
  cut_ = count >= 0 && static_cast<std::size_t>(count) < size;
  if (count < 0) ::close(std::exchange(fd_, -1));  // training matters more than watching it
  written_ = monotonicNow();
}

LiveReader::LiveReader(int ranks, int ranksOfPipeline)
    : ranks_(static_cast<std::size_t>(std::max(1, ranks))),
      ranksOfPipeline_(static_cast<std::size_t>(std::max(1, ranksOfPipeline))),
      logs_(ranks_),
      done_(ranks_) {}

bool LiveReader::feed(std::string_view bytes) {
  bool told = false;
  while (!bytes.empty()) {
    const std::size_t end = bytes.find('\n');
    if (rest_.size() + std::min(end, bytes.size()) > kLongestLine) {
      tooLong_ = true;
      rest_.clear();
    }
    if (!tooLong_ && (end == std::string_view::npos || !rest_.empty())) rest_.append(bytes.substr(0, end));
    if (end == std::string_view::npos) return told;
    if (!tooLong_) told = take(rest_.empty() ? bytes.substr(0, end) : std::string_view(rest_)) || told;
    rest_.clear();
    tooLong_ = false;
    bytes.remove_prefix(end + 1);
  }
  return told;
}

bool LiveReader::take(std::string_view line) {
  Scanner scanner(line);
  StepLog log;
  scanner.expect("{\"rank\":");
  const auto rank = static_cast<std::size_t>(scanner.number<std::int32_t>(0, static_cast<std::int32_t>(ranks_) - 1));
  scanner.expect(",\"step\":");
  const int step = scanner.number<std::int32_t>(0, std::numeric_limits<std::int32_t>::max());
  scanner.expect(",\"from\":");
  const Ns from(scanner.number<std::int64_t>(0, kLatest.value));
  scanner.expect(",\"spans\":");
  scanner.list([&] { log.spans.push_back(readSpan(scanner, from, static_cast<std::int32_t>(ranksOfPipeline_))); });
  scanner.expect(",\"memory\":");
  scanner.list([&] {
    MemorySample sample{Replicas{static_cast<int>(ranksOfPipeline_)}.rank(JobRank(rank)), 0, 0};
    scanner.expect("[");
    sample.time = from + Ns(scanner.number<std::int64_t>(-kMostApart.value, kMostApart.value));
    scanner.expect(",");
    sample.bytes = Bytes(scanner.number<std::int64_t>(-kMostBytes.value, kMostBytes.value));
    scanner.expect("]");
    log.memory.push_back(sample);
  });
  scanner.expect(",\"done\":");
  const bool done = scanner.tries("true");
  if (!done) scanner.expect("false");
  scanner.expect("}");
  if (!scanner.atEnd() || step < step_) return false;
  if (!log.spans.empty() || !log.memory.empty()) {
    if (!firstTime_) firstTime_ = from;
    if (from - *firstTime_ > kMostApart || *firstTime_ - from > kMostApart) return false;
  }
  if (step > step_) {
    if (auto last = newest(); last && last->complete) lastComplete_ = std::move(last);
    step_ = step;
    logs_.assign(ranks_, {});
    done_.assign(ranks_, false);
  }
  StepLog& known = logs_[rank];
  known.spans.insert(known.spans.end(), log.spans.begin(), log.spans.end());
  known.memory.insert(known.memory.end(), log.memory.begin(), log.memory.end());
  done_[rank] = done_[rank] || done;
  return true;
}

std::optional<LiveStep> LiveReader::newest() const {
  if (step_ < 0) return std::nullopt;
  return LiveStep{step_, joinTraces(logs_, ranksOfPipeline_), std::ranges::all_of(done_, [](bool done) { return done; })};
}

std::optional<LiveStep> LiveReader::worthShowing(Ns young) const {
  auto step = newest();
  if (!step || step->complete || !lastComplete_) return step;
  Ns end = 0;
  for (const Span& span : step->trace.spans) end = std::max(end, span.end);
  return end < young ? lastComplete_ : step;
}

}  // namespace pw
