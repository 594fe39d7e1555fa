#pragma once

#include <string>

#include "simulator/trace/trace.h"

namespace pw {

/// A timeline as text that can be read and compared by diff: one line per rank, at most `columns` wide, on the common scale `[0, span]`:
///
///         ms ┌0──────────────┬5─────────────┬10───┐
///     rank 0 │F0░F1░······B0▓▓▓▓F2░B1▓▓▓▓···B2▓▓▓▓│  75 % busy
///     rank 1 │···F0░B0▓▓▓▓F1░B1▓▓▓▓F2░B2▓▓▓▓······│  75 % busy
///
/// A column shows what fills most of it (ties: the earlier span, and any span before bubble). A block begins with its letter and, where
/// there is room, microbatch (`F3`; `2F3` with the stage where a rank has several). Waiting is bubble. `% busy` is of the makespan.
/// `span` 0 takes the trace's own end and, where all times are multiples of one unit, a whole number of columns for each unit;
/// a given `span` uses the full width, so traces drawn with the same `span` and number of ranks line up. With `colour`, ANSI colours.
struct TextOptions {
  int columns = 100;  ///< of a whole line; the drawing itself is never narrower than 10
  bool colour = false;
  Ns span = 0;
};
[[nodiscard]] std::string toText(const Trace& trace, const TextOptions& options);

}  // namespace pw
