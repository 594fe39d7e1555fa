#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace pw {

/// What a file is that this program reads or writes.
enum class FileKind : std::uint8_t {
  Unknown,  ///< none of these by its first bytes, or not there: whoever reads it says why it cannot
  Model,    ///< `.pt2`, or another zip archive
  LayerTable,
  MeasuredLayers,  ///< of PipeDream's profiler, or a log of Megatron-LM: `import` makes a layer table of it
  Plan,
  Profile,
  Job,
  Trace,  ///< also a folder of them
  Schedule,
  Problem,
  Cluster,
  Study,
  StudyResults,
  RunStore,
  Project,
  Dump,  ///< of a rank of a job that hangs; also a folder of them
};

/// What people call it, with its article: `a run store`.
[[nodiscard]] std::string_view nameOf(FileKind kind);
/// What is done with such a file: `list its runs with `pipewright runs --store runs.db``.
[[nodiscard]] std::string useOf(FileKind kind, std::string_view path);

/// What this is, by its content alone, whatever its name. Reads the first 64 KiB, of a compressed file 4 KiB unpacked, of a database its
/// head, and of a folder the first bytes of its first files.
[[nodiscard]] FileKind fileKindOf(const std::string& path);

/// Throws UsageError for a file that is certainly another thing than any of these: what it is, and what to do with it.
void requireKind(const std::string& path, std::initializer_list<FileKind> wanted);
/// The whole of a file of this kind; throws UsageError as `requireKind` and `readFile`.
[[nodiscard]] std::string readAs(FileKind wanted, const std::string& path);

/// What stands for a model: `Model` (several: one archive for each stage), `LayerTable`, `Job`, or `Trace` of a job. By content, and where
/// that says nothing by name; also of files that are not there, which whoever reads them says. Throws UsageError for other kinds, for a
/// folder without traces, and for traces and jobs among several files.
[[nodiscard]] FileKind modelKindOf(const std::vector<std::string>& paths);

}  // namespace pw
