#include "app/python/pictures.h"

#include <fmt/format.h>

#include "engine/planning/inputs/schedule_source.h"
#include "engine/planning/prediction.h"
#include "engine/planning/subject.h"
#include "simulator/timeline/html.h"

namespace pw::python {
namespace {

std::string escaped(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    if (c == '&')
      safe += "&amp;";
    else if (c == '<')
      safe += "&lt;";
    else
      safe += c;
  }
  return safe;
}

std::string pictureOfSubject(const Subject& subject) {
  const SubjectPrediction predicted = predictSubject(subject, Sending::Overlapped);
  if (predicted.problems.empty()) return pictureOf(predicted.trace, subject.schedule, subject.costSource);
  std::string html = fmt::format("<div>{}: it cannot run</div>\n<ul>\n", escaped(shapeLine(subject.schedule)));
  for (const Problem& problem : predicted.problems)
    html += fmt::format("<li>rank {}, {}: {}</li>\n", problem.rank.value, toString(problem.action), escaped(problem.message));
  return html + "</ul>\n";
}

}  // namespace

std::string pictureOf(const Trace& trace, const Schedule& schedule, const std::string& costs) {
  return toHtmlPart(trace, shapeLine(schedule)) + (costs.empty() ? "" : fmt::format("<div><small>{}</small></div>\n", escaped(costs)));
}

std::string pictureOf(const Schedule& schedule) { return pictureOfSubject(subjectOf(schedule, SubjectOptions())); }

std::string pictureOf(const Plan& plan) { return pictureOfSubject(subjectOf(plan, SubjectOptions())); }

}  // namespace pw::python
