#include "app/cli/text/output.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "schedules/error.h"
#include "schedules/printable.h"

namespace pw::cli {
namespace {

constexpr int kColumns = 100;  ///< of output that does not go to a terminal
constexpr int kFewest = 40;    ///< narrower terminals wrap: no table or timeline would be readable
constexpr int kBarColumns = 24;

std::size_t widthOf(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

bool isDigit(char c) { return c >= '0' && c <= '9'; }

/// `12`, `-1.5`, `+3.0 %`, `1.23 ms`: digits with an optional unit after a blank.
bool looksNumeric(std::string_view cell) {
  std::size_t at = !cell.empty() && (cell[0] == '+' || cell[0] == '-') ? 1 : 0;
  if (at == cell.size() || !isDigit(cell[at])) return false;
  while (at < cell.size() && (isDigit(cell[at]) || cell[at] == '.')) ++at;
  if (at == cell.size()) return true;
  return cell[at] == ' ' && cell.find(' ', at + 1) == std::string_view::npos && !isDigit(cell.back());
}

bool isPlaceholder(std::string_view cell) { return cell.empty() || cell == "–"; }

bool isNumericColumn(const std::vector<std::vector<std::string>>& rows, std::size_t column) {
  bool any = false;
  for (std::size_t r = 1; r < rows.size(); ++r) {
    if (column >= rows[r].size() || isPlaceholder(rows[r][column])) continue;
    if (!looksNumeric(rows[r][column])) return false;
    any = true;
  }
  return any;
}

std::string reason() { return std::strerror(errno); }

}  // namespace

std::string orDash(const std::string& text) { return text.empty() ? "–" : text; }

std::string table(const std::vector<std::vector<std::string>>& cells) {
  std::vector<std::vector<std::string>> rows = cells;
  for (auto& row : rows) std::ranges::transform(row, row.begin(), [](const std::string& cell) { return printableLine(cell); });
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    if (row.size() > widths.size()) widths.resize(row.size(), 0);
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], widthOf(row[c]));
  }
  std::vector<bool> numeric;
  for (std::size_t c = 0; c < widths.size(); ++c) numeric.push_back(isNumericColumn(rows, c));
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t c = 0; c < row.size(); ++c) {
      const std::string blanks(widths[c] - widthOf(row[c]), ' ');
      if (c > 0) line += "  ";
      line += numeric[c] ? blanks + row[c] : row[c] + blanks;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
  return text;
}

std::string sentence(std::string_view text) {
  std::string line;
  for (const char c : printable(text)) {
    const bool blank = c == '\n' || c == '\t' || c == ' ';
    if (!blank)
      line += c;
    else if (!line.empty() && line.back() != ' ')
      line += ' ';
  }
  line.erase(line.find_last_not_of(" .;,:") + 1);
  const auto isLower = [](char c) { return c >= 'a' && c <= 'z'; };
  const std::string word = line.substr(0, line.find(' '));
  const bool plain = !word.empty() && word.size() < line.size() && std::all_of(word.begin(), word.end(), isLower);
  // A file's name stays as it is, also one of a file that is not there.
  const std::string_view rest = std::string_view(line).substr(std::min(word.size(), line.size()));
  const bool isFile = rest.starts_with(" cannot be ") || rest.starts_with(" does not exist") || ::access(word.c_str(), F_OK) == 0;
  if (plain && !isFile) line[0] = static_cast<char>(line[0] - 'a' + 'A');
  return line + '.';
}

bool isTerminal(int descriptor) { return ::isatty(descriptor) == 1; }

int terminalColumns() {
  winsize size{};
  if (!isTerminal(STDOUT_FILENO) || ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kColumns;
  return std::max(kFewest, static_cast<int>(size.ws_col));
}

bool wantsColour() {
  const char* refused = std::getenv("NO_COLOR");
  return isTerminal(STDOUT_FILENO) && (refused == nullptr || *refused == '\0');
}

int complain(std::string_view text, int status) {
  std::fflush(stdout);
  const std::string line = "pipewright: " + sentence(text) + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
  return status;
}

void warn(std::string_view line) {
  std::fflush(stdout);
  const std::string text = "pipewright: " + printableLine(line) + "\n";
  std::fwrite(text.data(), 1, text.size(), stderr);
}

void print(std::string_view text) { printDrawing(printable(text)); }

void printDrawing(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    throw Error(fmt::format("cannot write to standard output ({}); free space there or send the output elsewhere", reason()));
  }
}

std::string versioned(std::string_view document) {
  constexpr int kVersion = 1;
  const std::size_t brace = document.find('{');
  if (brace == std::string_view::npos) return std::string(document);
  const std::size_t first = document.find_first_not_of(" \n", brace + 1);
  const std::string_view blank = document.substr(brace + 1, first - brace - 1);  // as the writer indents
  const bool isEmpty = document[first] == '}';
  return fmt::format("{}{}\"version\": {}{}{}{}", document.substr(0, brace + 1), blank, kVersion, isEmpty ? "" : ",",
                     blank.empty() && !isEmpty ? " " : blank, document.substr(first));
}

namespace {

/// Estimated remaining seconds, at the rate so far; nothing at the beginning.
class TimeLeft {
 public:
  std::optional<double> at(int done, int all) {
    const auto now = std::chrono::steady_clock::now();
    if (!start_) start_ = now;
    const double spent = std::chrono::duration<double>(now - *start_).count();
    if (done <= 0 || done >= all || spent < 0.5) return std::nullopt;
    return spent * static_cast<double>(all - done) / done;
  }

 private:
  std::optional<std::chrono::steady_clock::time_point> start_;
};

std::string leftText(std::optional<double> seconds) {
  if (!seconds) return "";
  const auto whole = std::llround(*seconds);
  return whole < 100 ? fmt::format("  about {} s left", whole) : fmt::format("  about {} min left", (whole + 30) / 60);
}

}  // namespace

std::function<void(int, int, const std::string&)> progress(const std::string& task, ProgressStyle style) {
  using Clock = std::chrono::steady_clock;
  if (style == ProgressStyle::Json) {
    return [task, left = TimeLeft(), last = Clock::time_point{}](int done, int all, const std::string& note) mutable {
      const auto now = Clock::now();
      const auto seconds = left.at(done, all);
      if (done < all && last != Clock::time_point{} && now - last < std::chrono::seconds(1)) return;
      last = now;
      nlohmann::ordered_json line = {{"task", task}, {"done", done}, {"all", all}, {"note", note}};
      if (seconds) line["left_s"] = std::round(10 * *seconds) / 10;
      static_cast<void>(
          writeAll(STDERR_FILENO, printable(line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace)) + "\n"));
    };
  }
  if (!isTerminal(STDERR_FILENO)) return [](int, int, const std::string&) {};
  return [task, left = TimeLeft(), last = Clock::time_point{}](int done, int all, const std::string& note) mutable {
    constexpr std::string_view kErase = "\r\x1b[K";
    if (done >= all) {
      static_cast<void>(writeAll(STDERR_FILENO, kErase));
      return;
    }
    const auto now = Clock::now();
    const auto seconds = left.at(done, all);
    if (now - last < std::chrono::milliseconds(50)) return;
    last = now;
    std::string bar;
    const int filled = all > 0 ? static_cast<int>(std::int64_t{kBarColumns} * std::max(0, done) / all) : 0;
    for (int c = 0; c < kBarColumns; ++c) bar += c < filled ? "█" : "░";
    const std::string count = all > 10'000 ? fmt::format("{} %", std::int64_t{100} * done / all) : fmt::format("{}/{}", done, all);
    static_cast<void>(writeAll(STDERR_FILENO, fmt::format("{}{} {} {}{}  {}", kErase, printableLine(task), bar, count, leftText(seconds),
                                                          printableLine(note.substr(0, 40)))));
  };
}

}  // namespace pw::cli
