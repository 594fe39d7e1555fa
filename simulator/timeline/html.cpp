#include "simulator/timeline/html.h"

#include "simulator/timeline/svg.h"

namespace pw {

std::string toHtmlPart(const Trace& trace, const std::string& title) {
  constexpr int kNotebookWidth = 960;  // of an output cell
  return "<div style=\"overflow-x:auto\">\n" + toSvg(trace, {.title = title, .width = kNotebookWidth, .inPage = true}) + "</div>\n";
}

std::string toHtml(const Trace& trace, const std::string& title) {
  return "<!doctype html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><title>Pipewright</title>\n"
         "<style>@media(prefers-color-scheme:dark){body{background:#1b1e21}}</style></head>\n<body>\n" +
         toHtmlPart(trace, title) + "</body>\n</html>\n";
}

}  // namespace pw
