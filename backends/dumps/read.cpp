#include "backends/dumps/read.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <simdjson.h>

#include "backends/dumps/formats.h"
#include "backends/host/files.h"
#include "schedules/error.h"

namespace pw {
namespace dumps {

void Source::refuse(const std::string& what) const {
  throw UsageError(fmt::format("{} is not a usable dump: {}; dump the rank again", file, what));
}

JobRank Source::rank(std::int64_t value, const char* what) const {
  if (value < 0 || value >= kMostJobRanks) refuse(fmt::format("{} is {}, not from 0 to {}", what, value, kMostJobRanks - 1));
  return JobRank{static_cast<std::int32_t>(value)};
}

std::size_t Source::group(hang::Group wanted) const {
  const auto [at, isNew] = known.groups.emplace(wanted, dumps.groups.size());
  if (!isNew) return at->second;
  for (const JobRank rank : wanted.ranks) dumps.ranks = std::max(dumps.ranks, rank.value + 1);
  dumps.groups.push_back(std::move(wanted));
  return dumps.groups.size() - 1;
}

void Source::add(hang::RankDump dump) const {
  const auto [before, isNew] = known.files.emplace(dump.rank, dump.file);
  if (!isNew) {
    dumps.notes.push_back(fmt::format("{} is left out: rank {} is in {} already", dump.file, dump.rank.value, before->second));
    return;
  }
  dumps.ranks = std::max(dumps.ranks, dump.rank.value + 1);
  for (const hang::RecordedOp& op : dump.ops) dumps.ranks = std::max(dumps.ranks, op.peer.value + 1);
  dumps.dumps.push_back(std::move(dump));
}

std::int64_t rankInName(const std::string& file) {
  const std::string name = std::filesystem::path(file).filename().string();
  const auto isDigit = [](char c) { return c >= '0' && c <= '9'; };
  const auto numberAt = [&](std::size_t at) {
    std::int64_t value = -1;
    std::from_chars(name.data() + at, name.data() + name.size(), value);
    return value;
  };
  std::size_t at = name.rfind("rank");
  if (at != std::string::npos) {
    at += 4;
    while (at < name.size() && (name[at] == '_' || name[at] == '-')) ++at;
    if (at < name.size() && isDigit(name[at])) return numberAt(at);
  }
  const auto last = std::find_if(name.rbegin(), name.rend(), isDigit);
  if (last == name.rend()) return -1;
  auto first = last;
  while (first != name.rend() && isDigit(*first)) ++first;
  return numberAt(static_cast<std::size_t>(name.rend() - first));
}

}  // namespace dumps

namespace {

namespace fs = std::filesystem;

constexpr std::uintmax_t kLargestFile = std::uintmax_t{1} << 30;
constexpr std::size_t kMostFiles = 65536;

struct Path {
  std::string file;
  bool named = true;
};

std::vector<Path> filesOf(const std::vector<std::string>& paths) {
  std::vector<Path> files;
  for (const std::string& path : paths) {
    std::error_code problem;
    if (!fs::is_directory(path, problem)) {
      files.push_back({path});
      continue;
    }
    std::vector<Path> inside;
    for (fs::directory_iterator at(path, problem), end; !problem && at != end && inside.size() <= kMostFiles; at.increment(problem)) {
      std::error_code ignored;
      if (at->is_regular_file(ignored)) inside.push_back({at->path().string(), false});
    }
    if (problem) throw UsageError(fmt::format("{} cannot be read: {}; check its permissions", path, problem.message()));
    if (inside.empty()) throw UsageError(fmt::format("{} holds no file; name the folder that the ranks dumped to", path));
    std::ranges::sort(inside, {}, &Path::file);
    files.insert(files.end(), inside.begin(), inside.end());
  }
  if (files.size() > kMostFiles)
    throw UsageError(fmt::format("{} files are more than {}; name those of one job", files.size(), kMostFiles));
  return files;
}

/// Pickles begin with their protocol, or, of protocol 0 and 1, with a mark or an empty dictionary.
bool isPickled(std::string_view text) { return text.starts_with('\x80') || text.starts_with("(dp") || text.starts_with("}q"); }

bool beginsAsObject(std::string_view text) {
  const std::size_t mark = text.find_first_not_of(" \t\r\n");
  return mark != std::string_view::npos && text[mark] == '{';
}

void readOne(const Path& path, simdjson::dom::parser& parser, hang::Dumps& dumps, dumps::Known& known) {
  const dumps::Source source{path.file, dumps, known};
  std::error_code problem;
  if (fs::exists(path.file, problem) && !fs::is_regular_file(path.file, problem))
    throw UsageError(fmt::format("{} is not a file; name what the ranks dumped", path.file));
  const std::uintmax_t size = fs::file_size(path.file, problem);
  if (problem) throw UsageError(fmt::format("{} cannot be read: {}; check the name", path.file, problem.message()));
  if (size > kLargestFile) source.refuse("it is larger than 1 GiB");
  std::ifstream file(path.file, std::ios::binary);
  std::string start(64, '\0');
  file.read(start.data(), static_cast<std::streamsize>(start.size()));
  start.resize(static_cast<std::size_t>(file.gcount()));
  if (isPickled(start))
    throw UsageError(
        fmt::format("{} is a pickled dump, which is not read because that can run any code; have the ranks write "
                    "torch._C._distributed_c10d._dump_fr_trace_json(), or, if you trust the file, convert it: python -c \"import "
                    "json, pickle, sys; json.dump(pickle.load(open(sys.argv[1], 'rb')), open(sys.argv[2], 'w'))\" IN OUT.json",
                    path.file));
  simdjson::dom::element root;
  const simdjson::error_code error = parser.load(path.file).get(root);
  if (error == simdjson::SUCCESS && dumps::isFlightRecorder(root)) return dumps::readFlightRecorder(root, source);
  if (error == simdjson::SUCCESS && dumps::isRas(root)) return dumps::readRas(root, source);
  if (error == simdjson::SUCCESS && dumps::isFlightRecord(root)) return dumps::readFlightRecord(root, source);
  if (path.named) {
    if (error != simdjson::SUCCESS && beginsAsObject(start))
      source.refuse(fmt::format("it is not JSON ({})", simdjson::error_message(error)));
    throw UsageError(fmt::format(
        "{} is {}no dump of torch's Flight Recorder, NCCL RAS or this program; give what one of these wrote (see `pipewright hang "
        "--help`)",
        path.file, start.empty() ? "empty, " : ""));
  }
  if (error != simdjson::SUCCESS && beginsAsObject(start)) {
    dumps.notes.push_back(
        fmt::format("{} is left out: it is damaged ({}); dump the rank again", path.file, simdjson::error_message(error)));
  } else if (!path.file.ends_with(".csv")) {  // the schedule that may lie beside dumps
    dumps.notes.push_back(fmt::format("{} is left out: it is no dump", path.file));
  }
}

/// The start of a job that a flight record of this program is of; empty for another file, and where the record does not say it.
std::string jobOf(const std::string& file, simdjson::dom::parser& parser) {
  std::error_code problem;
  if (headOf(file).find("\"oldest_open\"") == std::string::npos || fs::file_size(file, problem) > kLargestFile) return {};
  simdjson::dom::element root;
  simdjson::dom::object object;
  std::string_view job;
  const bool is = parser.load(file).get(root) == simdjson::SUCCESS && dumps::isFlightRecord(root) &&
                  root.get(object) == simdjson::SUCCESS && object["job"].get(job) == simdjson::SUCCESS;
  return is ? std::string(job) : std::string();
}

/// Records of earlier starts of a job lie beside those of the last where other ranks failed then: leaves out all but the newest start's.
void leaveOutEarlierJobs(std::vector<Path>& files, simdjson::dom::parser& parser, std::vector<std::string>& notes) {
  std::map<std::string, std::string> jobs;  // by file
  std::string newest;
  fs::file_time_type newestTime = fs::file_time_type::min();
  for (const Path& path : files) {
    std::string job = jobOf(path.file, parser);
    if (job.empty()) continue;
    std::error_code unknown;
    const fs::file_time_type time = fs::last_write_time(path.file, unknown);
    if (newest.empty() || (!unknown && time > newestTime)) newest = path.file, newestTime = time;
    jobs[path.file] = std::move(job);
  }
  std::erase_if(files, [&](const Path& path) {
    const auto own = jobs.find(path.file);
    const bool isEarlier = own != jobs.end() && own->second != jobs[newest];
    if (isEarlier)
      notes.push_back(fmt::format("{} is left out: it is of another start of the job than {}, which is newer", path.file, newest));
    return isEarlier;
  });
}

/// Orders and completes what all files together say.
void finish(hang::Dumps& dumps) {
  std::ranges::sort(dumps.dumps, {}, &hang::RankDump::rank);
  std::ranges::sort(dumps.gone, {}, &hang::RankReport::rank);
  const auto torn = std::ranges::find(dumps.dumps, false, &hang::RankDump::complete);  // then numbers of all ranks are compared
  if (torn == dumps.dumps.end()) return;
  const auto counts = std::ranges::find_if(dumps.dumps, pw::dumps::countsMessages);
  if (counts == dumps.dumps.end()) return;
  dumps.notes.push_back(
      fmt::format("{}: its torch (2.4) counts batches of messages among its collectives, and {} lost its beginning: collectives of "
                  "different ranks may be paired wrongly; raise TORCH_NCCL_TRACE_BUFFER_SIZE, or use torch 2.5 or newer",
                  counts->file, torn == counts ? "it" : torn->file));
}

}  // namespace

bool holdDumps(const std::string& path) {
  constexpr std::size_t kEnough = 65536, kFiles = 8;
  const auto beginsAsDump = [](const std::string& file) {
    const std::string start = headOf(file, kEnough);
    const std::string extension = fs::path(file).extension().string();
    if (start.starts_with('\x80')) return extension != ".pt" && extension != ".pth";  // pickled, and refused with the way to JSON
    if (!beginsAsObject(start)) return false;
    const auto has = [&](std::string_view word) { return start.find(word) != std::string::npos; };
    if (has("\"traceEvents\"") || has("\"schemaVersion\"")) return false;  // of Kineto, which describes process groups, too
    return has("\"pg_config\"") || (has("\"record_id\"") && has("\"profiling_name\"")) ||
           (has("\"nccl_version\"") && has("\"communicators\"")) || (has("\"awaited\"") && has("\"oldest_open\""));
  };
  std::error_code problem;
  if (!fs::is_directory(path, problem)) return beginsAsDump(path);
  std::size_t seen = 0;
  for (fs::directory_iterator at(path, problem), end; !problem && at != end && seen < kFiles; at.increment(problem), ++seen) {
    std::error_code ignored;
    if (at->is_regular_file(ignored) && beginsAsDump(at->path().string())) return true;
  }
  return false;
}

hang::Dumps readDumps(const std::vector<std::string>& paths) {
  hang::Dumps dumps;
  dumps::Known known;
  simdjson::dom::parser parser;
  std::vector<Path> files = filesOf(paths);
  leaveOutEarlierJobs(files, parser, dumps.notes);
  for (const Path& path : files) readOne(path, parser, dumps, known);
  if (dumps.dumps.empty() && dumps.ranks == 0)
    throw UsageError(fmt::format("{} holds no dump of torch's Flight Recorder, NCCL RAS or this program; see `pipewright hang --help`",
                                 paths.empty() ? std::string("nothing") : paths.front()));
  finish(dumps);
  return dumps;
}

}  // namespace pw
