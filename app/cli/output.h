#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "backends/host/files.h"

namespace pw::cli {

/// Right-aligned numbers, left-aligned words: columns as wide as their widest cell, two spaces between. The first row is the header.
/// Cells may hold UTF-8; width counts code points; what would end a line or a cell is shown as `printableLine` shows it.
[[nodiscard]] std::string table(const std::vector<std::vector<std::string>>& rows);

/// `12.3 %`, and with `signedPercent` `+12.3 %`, of a fraction.
[[nodiscard]] std::string percent(double fraction);
[[nodiscard]] std::string signedPercent(double fraction);
/// `1 rank`, `4 ranks`.
[[nodiscard]] std::string counted(std::int64_t number, std::string_view noun);

/// One line ending in a full stop, whatever came in: what stderr shows of an error.
[[nodiscard]] std::string sentence(std::string_view text);

/// Whether stdout (1) or stderr (2) is a terminal.
[[nodiscard]] bool isTerminal(int descriptor);
/// Columns of the terminal behind stdout; 100 where there is none.
[[nodiscard]] int terminalColumns();
/// Whether stdout takes colours: a terminal, and `NO_COLOR` not set.
[[nodiscard]] bool wantsColour();

/// One sentence to stderr, after the program's name; returns the status.
int complain(std::string_view text, int status);

/// A command's JSON document with the version of its form in front: `"version": 1`. It rises when fields are renamed or mean something
/// else.
[[nodiscard]] std::string versioned(std::string_view document);

/// Writes text or a JSON document to stdout, `printable`: names of models, files and stores may hold what a terminal obeys. Throws Error
/// when stdout is full or closed. All output goes through here, through `printDrawing`, `warn`, `complain` and `progress`.
void print(std::string_view text);
/// Writes a drawing, which has no names but may have colours, to stdout as it is. Throws as `print`.
void printDrawing(std::string_view drawing);
/// One line to stderr, after the program's name.
void warn(std::string_view line);

/// How progress is shown on stderr: a bar on a terminal, one JSON line a second with `--progress json`, nothing otherwise. Both say how
/// long the rest takes (`left_s`) if it goes on as until now, once that can be said.
enum class ProgressStyle : std::uint8_t { Automatic, Json };
[[nodiscard]] ProgressStyle parseProgressStyle(const std::string& text);

/// Returns `update(done, all, note)` for a task of that name. The bar is removed when done == all.
[[nodiscard]] std::function<void(int, int, const std::string&)> progress(const std::string& task, ProgressStyle style);

}  // namespace pw::cli
