// One import of a trace in a process of its own, so that its peak of memory is its own: `import_bench TRACE` prints one JSON line.
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <ctime>
#include <exception>
#include <string>

#include "backends/traces/import.h"
#include "simulator/timeline/fill.h"
#include "simulator/timeline/svg.h"
#include "simulator/timeline/timeline.h"

namespace {

double milliseconds(std::chrono::steady_clock::duration time) { return std::chrono::duration<double, std::milli>(time).count(); }

long peakMegabytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss / 1024;
}

int measure(const std::string& path) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  const std::clock_t work = std::clock();
  const pw::ImportedTrace trace = pw::importTrace({path}).value();
  const Clock::time_point imported = Clock::now();
  const double cpu = 1000.0 * static_cast<double>(std::clock() - work) / CLOCKS_PER_SEC;
  const long peak = peakMegabytes();
  const pw::Timeline timeline = pw::timelineOf(trace.steps.front().trace);
  const Clock::time_point laidOut = Clock::now();
  const long peakBoth = peakMegabytes();
  const std::string svg = pw::toSvg(trace.steps.front().trace);
  const Clock::time_point drawn = Clock::now();
  std::size_t spans = 0;
  for (const pw::ImportedStep& step : trace.steps) spans += step.trace.spans.size();
  std::printf(
      "{\"spans\": %zu, \"steps\": %zu, \"import_ms\": %.1f, \"import_cpu_ms\": %.1f, \"timeline_ms\": %.1f, \"svg_ms\": %.1f, "
      "\"svg_bytes\": %zu, \"peak_mib\": %ld, \"peak_with_timeline_mib\": %ld, \"end\": %lld}\n",
      spans, trace.steps.size(), milliseconds(imported - begin), cpu, milliseconds(laidOut - imported), milliseconds(drawn - laidOut),
      svg.size(), peak, peakBoth, static_cast<long long>(timeline.end));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "import_bench: give one trace\n");
    return 2;
  }
  try {
    return measure(argv[1]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "import_bench: %s\n", error.what());
    return 1;
  }
}
