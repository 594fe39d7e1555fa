#include "app/gui/timeline/finder.h"

#include <algorithm>
#include <utility>

namespace pw::gui {
namespace {

constexpr int kTypingMs = 120;  ///< after the last key of a long search

using Emphasis = Selection::Emphasis;

}  // namespace

Finder::Finder(const Scene& scene, Selection& selection, FindBar& bar) : scene_(scene), selection_(selection), bar_(bar) {
  typing_.setSingleShot(true);
  typing_.setInterval(kTypingMs);
  connect(&typing_, &QTimer::timeout, this, [this] { search(bar_.text(), true); });
}

int Finder::search(const QString& query, bool selects) {
  const ParsedQuery parsed = parseQuery(query);
  const std::size_t keptAt = selects ? 0 : at_;
  found_ = parsed.understood ? findAll(parsed.query, scene_.predicted.get(), scene_.measured.get()) : std::vector<Found>();
  query_ = query;
  at_ = found_.empty() ? 0 : std::min(keptAt, found_.size() - 1);
  std::vector<SourcedSpan> spans;
  for (const Found& one : found_) {
    if (!one.bubble) spans.push_back(one.at);
  }
  if (!found_.empty() && selects) selection_.leaveGap();
  if (selection_.emphasis() != Emphasis::Chain) selection_.emphasize(found_.empty() ? Emphasis::None : Emphasis::Found, std::move(spans));
  if (parsed.wrong.isEmpty())
    showCount();
  else
    bar_.setCount(tr("“%1”?").arg(parsed.wrong), false);
  if (selects && !found_.empty()) step(0);
  return static_cast<int>(found_.size());
}

void Finder::searchSoon() { typing_.start(); }

void Finder::step(int direction) {
  if (typing_.isActive()) {
    typing_.stop();
    search(bar_.text(), true);
    return;
  }
  if (found_.empty()) return;
  at_ = (at_ + found_.size() + static_cast<std::size_t>(direction + 1) - 1) % found_.size();
  const Found one = found_[at_];
  if (one.bubble)
    selection_.selectGap({one.at.source, one.at.span.rank, one.at.span.index});
  else
    selection_.selectSpan(one.at);
  showCount();
}

void Finder::close() {
  bar_.hide();
  query_.clear();
  found_.clear();
  if (selection_.emphasis() == Emphasis::Found) selection_.emphasize(Emphasis::None, {});
  if (selection_.showsPath()) selection_.showPath();
}

void Finder::forget() { found_.clear(); }

void Finder::refresh() {
  if (!query_.isEmpty()) search(query_, false);
}

void Finder::showCount() {
  if (found_.empty())
    bar_.setCount(query_.isEmpty() ? QString() : tr("nothing found"), query_.isEmpty());
  else
    bar_.setCount(tr("%1 of %2").arg(at_ + 1).arg(found_.size()), true);
}

}  // namespace pw::gui
