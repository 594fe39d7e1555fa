#pragma once

#include <QString>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/gui/document/run_name.h"
#include "simulator/timeline/timeline.h"

namespace pw::gui {

/// A block of a timeline by what it shows, so that it is found again in another state of the plan.
struct BlockName {
  bool isMeasured = false;  ///< else predicted
  Rank rank;
  SpanTag tag;

  bool operator==(const BlockName&) const = default;
};

/// A note on the timeline, at a time or at a block; without a text a bookmark.
struct Note {
  std::string text;
  Ns time = 0;                     ///< of a block: where it was when the note was written; used while there is no such block
  std::optional<BlockName> block;  ///< the note goes where it goes
  // What it is about, and is shown with; without any of these it is the plan.
  std::optional<RunName> run{};
  std::vector<std::string> trace{};  ///< of another tool: its files, absolute
  std::string pinned{};              ///< a plan's title
  enum class Place : std::uint8_t { Block, BubbleBefore, BubbleAfter };
  Place place = Place::Block;  ///< of `block`: at it, at the bubble before it, or after it, at the end of its row

  bool operator==(const Note&) const = default;
};

inline constexpr std::size_t kMostNotes = 1000;
inline constexpr Ns kLatestNote = Ns{1} << 53;     ///< 104 days; what JSON's doubles hold exactly
inline constexpr std::size_t kLongestNote = 2000;  ///< bytes

class Document;
struct Measured;

/// Makes a note one about this step: of its run, its trace or its pinned plan.
void setAbout(Note& note, const Measured& measured);
/// Whether a note is about what is shown, where this (null: nothing) is shown as measured.
[[nodiscard]] bool isAbout(const Note& note, const Measured* measured);
/// `run 7 · 22 Nov 14:03`, `trace.json`, `plan A: zb-h1, 4 ranks, …`; empty: the plan.
[[nodiscard]] QString subjectOf(const Note& note);
/// What shows the subject of a note that is not about the plan: `choose that run under Runs`.
[[nodiscard]] QString howToShow(const Note& note);

// Each is one undo step. Notes are numbered in the order in which they were added.
/// False: there are `kMostNotes` already.
[[nodiscard]] bool addNote(Document& document, Note note);
void changeNote(Document& document, std::size_t index, const QString& text);  ///< a text that is too long is cut off
void removeNote(Document& document, std::size_t index);

/// A text as a note takes it: in one line, and not too long.
[[nodiscard]] std::string noteText(const QString& text);

}  // namespace pw::gui
