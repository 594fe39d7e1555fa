#pragma once

#include <string>
#include <vector>

#include "backends/messages/meeting.h"
#include "backends/torch/backend.h"

namespace pw {

/// Meets the other ranks. If torchrun's agent serves c10d's store at the master's port, rank 0 serves on another port and publishes it
/// there, signed with the job's token; that store's own waits have no deadline, so ours is applied. `torch` is loaded only in that case.
[[nodiscard]] Meeting openMeeting(const Rendezvous& rendezvous, const TorchBackend& (*torch)() = &torchBackend);

/// Something that must be the same on all ranks of a job.
struct JobField {
  std::string name;   ///< as a user says it: `--lr`, `the data file`
  std::string value;  ///< what is compared
  std::string shown;  ///< of the value for a person, short; empty: nothing to show

  bool operator==(const JobField&) const = default;
};

/// What a rank is about to do, the most informative field first: if several differ, the first is named.
using JobFields = std::vector<JobField>;

/// Empty if two ranks are about to do the same; otherwise a sentence that names both, the first field that differs, and its values; `other`
/// is that of rank `rank`, `first` of rank 0.
[[nodiscard]] std::string differenceBetween(const JobFields& first, const JobFields& other, JobRank rank);

/// Compares the fields of all ranks, on rank 0. Returns on all of them or throws the same on all: UsageError naming the field and two ranks
/// where they differ; Error naming the ranks that did not arrive within the deadline; or what a rank reported by `reportAbsence`.
void requireSameFields(const Meeting& meeting, const Rendezvous& rendezvous, const JobFields& fields);

/// Called instead of `requireSameFields` by a rank that cannot take part: tells the others why, so that they need not wait until the
/// deadline. Waits for no longer than three seconds; never throws.
void reportAbsence(const Rendezvous& rendezvous, const std::string& sentence, bool unusable) noexcept;

}  // namespace pw
