#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "backends/host/files.h"
#include "engine/planning/inputs/progress_style.h"
#include "simulator/text/counted.h"
#include "simulator/text/percent.h"

namespace pw::cli {

/// Right-aligned numbers, left-aligned words: columns as wide as their widest cell, two spaces between. The first row is the header. Cells
/// may hold UTF-8; width counts code points; line ends and tabs are escaped as by `printableLine`.
[[nodiscard]] std::string table(const std::vector<std::vector<std::string>>& rows);
/// The text, or a dash where there is none: for a cell of a table.
[[nodiscard]] std::string orDash(const std::string& text);

/// The text as one line that ends in a full stop, for errors on stderr.
[[nodiscard]] std::string sentence(std::string_view text);

/// Whether stdout (1) or stderr (2) is a terminal.
[[nodiscard]] bool isTerminal(int descriptor);
/// Columns of the terminal on stdout; 100 if it is not a terminal.
[[nodiscard]] int terminalColumns();
/// Whether to use colours: stdout is a terminal, and `NO_COLOR` is not set.
[[nodiscard]] bool wantsColour();

/// One sentence to stderr, after the program's name; returns the status.
int complain(std::string_view text, int status);

/// A command's JSON document, starting with its format version: `"version": 1`. It is raised when fields are renamed or change their
/// meaning.
[[nodiscard]] std::string versioned(std::string_view document);

/// Writes text or a JSON document to stdout, `printable`: names of models, files and stores may contain control sequences. Throws Error
/// when stdout is full or closed. All output goes through here, through `printDrawing`, `warn`, `complain` and `progress`.
void print(std::string_view text);
/// Writes a drawing, which contains no names but may have colours, to stdout unchanged. Throws as `print`.
void printDrawing(std::string_view drawing);
/// One line to stderr, after the program's name.
void warn(std::string_view line);

/// Returns `update(done, all, note)` for a task of that name. Bar and lines show the remaining time (`left_s`), once it can be estimated.
/// The bar is removed when done == all.
[[nodiscard]] std::function<void(int, int, const std::string&)> progress(const std::string& task, ProgressStyle style);

}  // namespace pw::cli
