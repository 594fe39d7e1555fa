#include "app/gui/document/notes.h"

#include <filesystem>
#include <utility>

#include "app/gui/common/format.h"
#include "app/gui/document/document.h"

namespace pw::gui {

std::string noteText(const QString& text) {
  QString line = text.simplified();
  while (static_cast<std::size_t>(line.toUtf8().size()) > kLongestNote) line.chop(std::max<qsizetype>(1, line.size() / 16));
  return line.toStdString();
}

void setAbout(Note& note, const Measured& measured) {
  if (measured.run)
    note.run = runNameOf(*measured.run);
  else if (!measured.pinnedAs.isEmpty())
    note.pinned = measured.title.toStdString();
  else
    note.trace = measured.from.paths;
}

bool isAbout(const Note& note, const Measured* measured) {
  if (!note.run && note.trace.empty() && note.pinned.empty()) return true;
  if (measured == nullptr) return false;
  if (note.run) return measured->run && isRun(*note.run, measured->run->id, measured->run->startedAt);
  if (!note.pinned.empty()) return !measured->pinnedAs.isEmpty() && measured->title.toStdString() == note.pinned;
  return !measured->run && measured->from.paths == note.trace;
}

QString subjectOf(const Note& note) {
  if (note.run) return titleOf(*note.run);
  if (!note.pinned.empty()) return translated("plan %1").arg(QString::fromStdString(note.pinned));
  if (note.trace.empty()) return {};
  const QString first = QString::fromStdString(std::filesystem::path(note.trace.front()).filename().string());
  return note.trace.size() == 1 ? first : translated("%1 and %2 more").arg(first).arg(note.trace.size() - 1);
}

QString howToShow(const Note& note) {
  if (note.run) return translated("choose that run under Runs");
  return note.pinned.empty() ? translated("open that trace") : translated("choose it under Pinned plans");
}

bool addNote(Document& document, Note note) {
  if (document.design().notes.size() >= kMostNotes) return false;
  const QString what = note.text.empty() ? Document::tr("Add bookmark") : Document::tr("Add note");
  document.edit(what, [&](Design& design) { design.notes.push_back(std::move(note)); });
  return true;
}

void changeNote(Document& document, std::size_t index, const QString& text) {
  if (index >= document.design().notes.size()) return;
  document.edit(Document::tr("Edit note"), [&](Design& design) { design.notes[index].text = noteText(text); });
}

void removeNote(Document& document, std::size_t index) {
  const auto& notes = document.design().notes;
  if (index >= notes.size()) return;
  const QString what = notes[index].text.empty() ? Document::tr("Delete bookmark") : Document::tr("Delete note");
  document.edit(what, [&](Design& design) { design.notes.erase(design.notes.begin() + static_cast<std::ptrdiff_t>(index)); });
}

}  // namespace pw::gui
