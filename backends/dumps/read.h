#pragma once

#include <string>
#include <vector>

#include "simulator/hang/recording.h"

namespace pw {

/// Reads what the ranks of a job that hangs recorded: files, or folders of them. Formats are detected by content:
/// - torch's Flight Recorder as JSON (`torch._C._distributed_c10d._dump_fr_trace_json()`, versions 2.x), one file for each rank. The rank
///   is the file's `rank`, else that of its messages (`nccl:send 0->1`), else the number in its name. Operations of a coalesced group have
///   the group's state;
/// - `ncclras -f json`, one file for the job: ranks that do not answer, and counts of operations. Ranks are those of the largest
///   communicator;
/// - flight records that ranks of this program write when they fail.
/// In a folder other files are left out with a note, but for schedules (.csv); of a damaged dump it says why. A group whose ranks no dump
/// lists is taken to be of all ranks. Pickled dumps are never read, because reading one can run any code. Throws UsageError
/// for files that cannot be read or are none of these, and where nothing is left. Cost: linear in the files'
/// length, and m log m in files and groups.
[[nodiscard]] hang::Dumps readDumps(const std::vector<std::string>& paths);

/// Whether a file, or the first files of a folder, begin as dumps do: by words of the formats, so that a sound dump is recognised, and what
/// is damaged is refused as one. Nothing is read but some kilobytes.
[[nodiscard]] bool holdDumps(const std::string& path);

}  // namespace pw
