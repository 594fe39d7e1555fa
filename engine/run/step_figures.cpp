#include "engine/run/step_figures.h"

#include <unistd.h>

#include <array>
#include <cassert>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "schedules/error.h"

namespace pw {
namespace {

struct FixedPart {
  Ns duration = 0;
  Ns makespan = 0, step = 0;
  double bubbleFraction = 0, loss = 0, gradientNorm = 0;
  std::int32_t number = 0, hasNorm = 0;
};

struct RankPart {
  Ns busy = 0, idle = 0, exposedComm = 0;
  Bytes peakBytes = 0;
  std::int64_t peakLiveMicrobatches = 0;
};

/// Where a file without a name may be, best first: TMPDIR may be wrong, and the steps are done when it is needed.
std::vector<std::string> temporaryFolders() {
  const char* const given = std::getenv("TMPDIR");
  std::vector<std::string> folders{"/tmp", "/var/tmp", "."};
  if (given != nullptr && *given != '\0') folders.insert(folders.begin(), given);
  return folders;
}

[[noreturn]] void failed(const char* what) {
  throw Error(fmt::format("cannot {} the temporary file for the figures of steps ({}); free space in {} or set TMPDIR", what,
                          std::strerror(errno), temporaryFolders().front()));
}

template <class Part>
void append(std::string& bytes, const Part& part) {
  bytes.append(reinterpret_cast<const char*>(&part), sizeof(part));
}

/// Directly, not through the file's buffer: what was written stays readable when the disk is full.
void write(std::FILE* file, const std::string& bytes, std::int64_t at) {
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t count = ::pwrite(::fileno(file), bytes.data() + done, bytes.size() - done, at + static_cast<std::int64_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) failed("write");
    done += static_cast<std::size_t>(count);
  }
}

template <class Part>
Part read(std::FILE* file) {
  Part part;
  if (std::fread(&part, sizeof(part), 1, file) != 1) failed("read");
  return part;
}

std::FILE* openNameless() {
  int descriptor = -1;
  for (const std::string& folder : temporaryFolders()) {
    std::string name = folder + "/pipewright-steps-XXXXXX";
    descriptor = ::mkstemp(name.data());
    if (descriptor < 0) continue;
    ::unlink(name.c_str());
    break;
  }
  if (descriptor < 0) failed("make");
  std::FILE* file = ::fdopen(descriptor, "w+b");
  if (file == nullptr) {
    ::close(descriptor);
    failed("open");
  }
  return file;
}

}  // namespace

void StepFigureFile::add(const StepFigures& figures) {
  if (!file_) {
    file_.reset(openNameless());
    ranks_ = figures.metrics.ranks.size();
  }
  assert(figures.metrics.ranks.size() == ranks_);
  const Metrics& m = figures.metrics;
  std::string bytes;
  append(bytes, FixedPart{figures.duration, m.makespan, m.step, m.bubbleFraction, figures.loss, figures.gradientNorm.value_or(0),
                          figures.step, figures.gradientNorm ? 1 : 0});
  for (const RankMetrics& r : m.ranks) append(bytes, RankPart{r.busy, r.idle, r.exposedComm, r.peakBytes, r.peakLiveMicrobatches});
  write(file_.get(), bytes, size_ * static_cast<std::int64_t>(bytes.size()));
  ++size_;
}

void StepFigureFile::seek(std::int64_t position) {
  const auto bytes = static_cast<std::int64_t>(sizeof(FixedPart) + ranks_ * sizeof(RankPart));
  if (::fseeko(file_.get(), position * bytes, SEEK_SET) != 0) failed("read");
}

StepFigures StepFigureFile::readNext() {
  const auto fixed = read<FixedPart>(file_.get());
  StepFigures figures;
  figures.step = fixed.number;
  figures.loss = fixed.loss;
  if (fixed.hasNorm != 0) figures.gradientNorm = fixed.gradientNorm;
  figures.duration = fixed.duration;
  figures.metrics.makespan = fixed.makespan;
  figures.metrics.step = fixed.step;
  figures.metrics.bubbleFraction = fixed.bubbleFraction;
  for (std::size_t r = 0; r < ranks_; ++r) {
    const auto part = read<RankPart>(file_.get());
    figures.metrics.ranks.push_back(
        {Rank(r), part.busy, part.idle, part.exposedComm, part.peakBytes, static_cast<int>(part.peakLiveMicrobatches)});
  }
  return figures;
}

StepFigures StepFigureFile::at(std::int64_t position) {
  assert(0 <= position && position < size_);
  seek(position);
  return readNext();
}

void StepFigureFile::forEach(const std::function<void(const StepFigures&)>& see) {
  if (size_ == 0) return;
  seek(0);
  for (std::int64_t i = 0; i < size_; ++i) see(readNext());
}

/// Without the first, which warms up.
void StepFigureFile::forEachDuration(const std::function<void(std::int64_t, Ns)>& see) {
  seek(1);
  std::array<RankPart, 64> skipped;
  for (std::int64_t i = 1; i < size_; ++i) {
    see(i, read<FixedPart>(file_.get()).duration);
    for (std::size_t left = ranks_; left > 0;) {
      const std::size_t part = std::min(left, skipped.size());
      if (std::fread(skipped.data(), sizeof(RankPart), part, file_.get()) != part) failed("read");
      left -= part;
    }
  }
}

/// By digits, the highest first: no list of durations is held.
StepFigures StepFigureFile::median() {
  assert(size_ > 0);
  if (size_ == 1) return at(0);
  constexpr int kBits = 16;
  std::int64_t wanted = (size_ - 2) / 2;  // among those that share the digits found so far
  std::int64_t digits = 0;
  for (int shift = 64 - kBits; shift >= 0; shift -= kBits) {
    std::vector<std::int64_t> counts(std::size_t{1} << kBits);
    forEachDuration([&](std::int64_t, Ns duration) {
      const bool shares = shift + kBits == 64 || duration.value >> (shift + kBits) == digits;
      if (shares) ++counts[static_cast<std::size_t>((duration.value >> shift) & ((1 << kBits) - 1))];
    });
    std::size_t digit = 0;
    while (wanted >= counts[digit]) wanted -= counts[digit++];
    digits = digits << kBits | static_cast<std::int64_t>(digit);
  }
  std::int64_t found = 1;
  forEachDuration([&](std::int64_t position, Ns duration) {
    if (duration == digits && wanted-- == 0) found = position;
  });
  return at(found);
}

}  // namespace pw
