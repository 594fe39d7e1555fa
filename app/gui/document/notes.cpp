#include "app/gui/document/notes.h"

#include <utility>

#include "app/gui/document/document.h"

namespace pw::gui {

std::string noteText(const QString& text) {
  QString line = text.simplified();
  while (static_cast<std::size_t>(line.toUtf8().size()) > kLongestNote) line.chop(std::max<qsizetype>(1, line.size() / 16));
  return line.toStdString();
}

bool isAbout(const Note& note, const Measured* measured) {
  if (!note.run) return true;
  return measured != nullptr && measured->run && isRun(*note.run, measured->run->id, measured->run->startedAt);
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
