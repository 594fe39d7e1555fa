#pragma once

#include <algorithm>
#include <cstddef>
#include <tuple>
#include <vector>

#include "simulator/timeline/timeline.h"

namespace pw {

/// The sort key of spans that start at the same time.
[[nodiscard]] inline auto orderOf(const SpanTrack& track, std::size_t i) {
  const SpanTag& tag = track.tags[i];
  return std::tuple(track.end[i], tag.kind, tag.stage, tag.microbatch, tag.peer);
}

/// Orders spans that start at the same time: needed when one has no duration, or with messages of several channels.
void sortTies(SpanTrack& track);

/// Merges runs that are each in the order of starts: the first begins at 0, each other one at its bound, the last one ends at the track's
/// end. Cost: spans times the logarithm of runs.
void mergeRuns(SpanTrack& track, std::vector<std::size_t> begins);

/// Computes the summaries of all tracks and of the whole timeline; or in parts, of which the first two may run in parallel.
void summarize(Timeline& timeline);
void summarizeRanks(Timeline& timeline);  ///< compute and memory
void summarizeCommunication(Timeline& timeline);
void summarizeWhole(Timeline& timeline);

/// Overwrites a track from its beginning, in the order of starts.
class SpanWriter {
 public:
  SpanWriter(SpanTrack& track, std::size_t expected) : track_(&track) { room(track.size() > 0 ? track.size() : expected); }

  [[gnu::always_inline]] void push(Ns start, Ns end, SpanTag tag) {
    if (size_ == capacity_) room(std::max<std::size_t>(64, 2 * capacity_));
    start_[size_] = start;
    end_[size_] = end;
    tags_[size_] = tag;
    tidy_ = tidy_ && (size_ == 0 || start_[size_ - 1] < start ||
                      (start_[size_ - 1] == start && orderOf(*track_, size_ - 1) <= orderOf(*track_, size_)));
    ++size_;
  }
  void finish() {
    room(size_);
    if (!tidy_) sortTies(*track_);
  }

 private:
  void room(std::size_t size) {
    track_->start.resize(size);
    track_->end.resize(size);
    track_->tags.resize(size);
    start_ = track_->start.data();
    end_ = track_->end.data();
    tags_ = track_->tags.data();
    capacity_ = size;
  }

  SpanTrack* track_;
  Ns* start_ = nullptr;
  Ns* end_ = nullptr;
  SpanTag* tags_ = nullptr;
  std::size_t size_ = 0, capacity_ = 0;
  bool tidy_ = true;
};

/// Overwrites a memory curve: one sample at 0, then one wherever the bytes after all changes of an instant differ.
class MemoryWriter {
 public:
  /// `most`: samples there can be at most, as far as known.
  explicit MemoryWriter(MemoryTrack& track, std::size_t most = 0) : track_(&track) {
    track_->time.reserve(most);
    track_->bytes.reserve(most);
    room(std::max<std::size_t>(track_->time.size(), 64));
  }

  void change(Ns time, Bytes bytes) {
    if (bytes == 0) return;
    if (time != now_) {
      settle();
      now_ = time;
    }
    held_ += bytes;
    most_ = std::max(most_, held_);
  }
  /// Writes what changed last, unless the samples were `put`; before it the most of that instant, where there was more than before and
  /// after.
  void settle() {
    if (most_ > held_ && (size_ == 0 || most_ > last_)) put(now_, most_);
    if (size_ == 0 || last_ != held_) put(now_, held_);
    most_ = held_;
  }
  void put(Ns time, Bytes bytes) {
    if (size_ == capacity_) room(size_ < track_->time.capacity() ? std::min(2 * size_, track_->time.capacity()) : 2 * size_);
    time_[size_] = time;
    bytes_[size_++] = last_ = bytes;
  }
  void finish() { room(size_); }

 private:
  void room(std::size_t size) {
    track_->time.resize(size);
    track_->bytes.resize(size);
    time_ = track_->time.data();
    bytes_ = track_->bytes.data();
    capacity_ = size;
  }

  MemoryTrack* track_;
  Ns* time_ = nullptr;
  Bytes* bytes_ = nullptr;
  std::size_t size_ = 0, capacity_ = 0;
  Ns now_ = 0;
  Bytes held_ = 0, last_ = 0, most_ = 0;
};

}  // namespace pw
