#pragma once

// Internal to the import of traces: a Chrome trace cut into windows of whole events, so that a file of any size needs little memory.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

struct gzFile_s;

namespace pw {

/// State of a scan of JSON text: the bracket depth, and whether it is inside a string.
struct BracketScan {
  std::int64_t depth = 0;
  bool inString = false;
  bool escaped = false;  ///< the next character is

  /// What one call found, as offsets into its text.
  struct Found {
    std::size_t cut = 0;                  ///< after the last bracket that closed to depth 0; 0: none did
    std::size_t end = std::string::npos;  ///< of the bracket that closed depth 0 itself; the scan stops there
  };
  /// Scans `text`. Cost: about a cycle for two bytes where blocks of 64 bytes hold no backslash.
  Found scan(std::string_view text);
  /// The same of one character, which stands at `offset`.
  void one(char c, std::size_t offset, Found& found);

 private:
  void block(const char* at, std::size_t offset, Found& found);
};

/// The events of a Chrome trace: of an array, or of the array `traceEvents` of an object; of a file compressed by gzip, too.
class EventWindows {
 public:
  /// Opens the file. Throws UsageError when it cannot be read or its text begins with neither `[` nor `{`.
  explicit EventWindows(const std::string& path);
  ~EventWindows();
  EventWindows(const EventWindows&) = delete;
  EventWindows& operator=(const EventWindows&) = delete;

  /// The next events as the text of a JSON array followed by kPadding readable bytes, valid until the next call; or none yet (empty). False
  /// at the end. Throws UsageError when the disk fails or a single event is too large.
  [[nodiscard]] bool next(std::string_view& events);
  static constexpr std::size_t kPadding = 64;
  /// Replaces all non-ASCII bytes in the events that `next` returned by question marks.
  void replaceBeyondAscii(std::string_view events);

  [[nodiscard]] std::uint64_t size() const { return size_; }      ///< of the file, as it was opened
  [[nodiscard]] std::uint64_t position() const { return read_; }  ///< bytes of the file that were read
  [[nodiscard]] bool hasEvents() const { return hasEvents_; }     ///< an array of events was met
  [[nodiscard]] bool isTruncated() const { return truncated_; }   ///< the file ended before the JSON did
  /// `baseTimeNanoseconds` and `distributedInfo` of the object, as text, where it has them.
  [[nodiscard]] const std::map<std::string, std::string>& members() const { return members_; }

 private:
  enum class Phase : std::uint8_t { Start, Members, Events, Done };
  bool fill();
  [[nodiscard]] std::ptrdiff_t readSome(char* into, std::size_t room);
  void grow();
  void start();
  void readMembers();
  void endMember();
  std::string_view nextWindow();
  std::string_view window(std::size_t end);

  std::string path_;
  int file_ = -1;
  gzFile_s* zipped_ = nullptr;  ///< reads `file_`, where it is compressed
  std::uint64_t size_ = 0, read_ = 0;
  std::unique_ptr<char[]> buffer_;
  std::size_t capacity_ = 0, begin_ = 0, scanned_ = 0, end_ = 0;  ///< in the buffer: [begin, end) is unused, of it [begin, scanned) scanned
  std::size_t cut_ = 0;                                           ///< in the buffer: end of the last whole event; 0: none yet
  std::size_t behind_ = 0;                                        ///< where the window's bracket stands instead of `overwritten_`
  char overwritten_ = 0;
  BracketScan scan_;
  Phase phase_ = Phase::Start;
  bool hasEvents_ = false, bare_ = false, truncated_ = false, atEnd_ = false;
  std::string member_;
  bool memberTooLong_ = false;
  std::map<std::string, std::string> members_;
};

}  // namespace pw
