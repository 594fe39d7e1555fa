#include "simulator/page/page.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "schedules/error.h"
#include "simulator/page/page_files.h"
#include "simulator/page/tracks.h"
#include "simulator/timeline/figure_looks.h"
#include "simulator/timeline/fill.h"

namespace pw {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kReasonBytes = 200 * 1024;

Json laneJson(const PageLane& lane, page::Tags& tags) {
  const Timeline timeline = timelineOf(*lane.trace);
  Json json{{"name", lane.name}, {"end", timeline.end}, {"ranks", Json::array()}};
  for (std::size_t r = 0; r < timeline.ranks.size(); ++r) {
    const Timeline::RankTracks& tracks = timeline.ranks[r];
    json["ranks"].push_back({page::tracksText(tracks.compute, Rank{r}, true, tags),
                             page::tracksText(tracks.communication, Rank{r}, false, tags),
                             page::shortReasons(lane, Rank{r}, tracks.compute)});
  }
  json["reasons"] = Json::object();
  if (lane.explanation != nullptr) {
    for (const auto& [at, reason] : page::longReasons(*lane.explanation, kReasonBytes))
      json["reasons"][fmt::format("{}:{}", at.first, page::base36(at.second.value))] = reason;
  }
  return json;
}

/// A document inside a script element: nothing in it ends the element.
std::string inScript(const Json& json) {
  std::string text;
  for (const char c : json.dump(-1, ' ', false, Json::error_handler_t::replace))
    text += c == '<' ? std::string("\\u003c") : std::string(1, c);
  return text;
}

std::string escaped(const std::string& text) {
  std::string safe;
  for (const char c : text) safe += c == '<' ? "&lt;" : c == '&' ? "&amp;" : std::string(1, c);
  return safe;
}

}  // namespace

std::string toHtml(const Page& page) {
  std::size_t spans = 0;
  for (const PageLane& lane : page.lanes) spans += lane.trace->spans.size();
  if (spans > kMostPageSpans)
    throw UsageError(fmt::format("{} spans are more than a page shows, {}; export a chrome or svg file instead", spans, kMostPageSpans));
  page::Tags tags;
  Json json{
      {"title", page.title}, {"sentence", page.sentence}, {"facts", Json::array()}, {"lanes", Json::array()}, {"tables", Json::array()}};
  for (const auto& [name, value] : page.facts) json["facts"].push_back({name, value});
  for (const PageLane& lane : page.lanes) json["lanes"].push_back(laneJson(lane, tags));
  for (const PageTable& table : page.tables) json["tables"].push_back({{"title", table.title}, {"head", table.head}, {"rows", table.rows}});
  json["kinds"] = Json::array();
  for (const SpanKind kind : valuesOf<SpanKind>()) json["kinds"].push_back({nameOf(kind), wordOf(kind)});
  std::string text =
      "<!doctype html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width\">\n<title>" +
      escaped(page.title) + "</title>\n<style>\n";
  text += kPageCss;
  text += "</style></head>\n<body>\n<script id=\"data\" type=\"application/json\">";
  std::string document = inScript(json);
  document.pop_back();
  text += document + ",\"tags\":" + tags.json() + "}</script>\n<script>\n";
  text += kPageJs;
  return text + "</script>\n</body>\n</html>\n";
}

}  // namespace pw
