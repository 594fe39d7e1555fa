#include "engine/processes/failure.h"

#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string_view>
#include <thread>

#include <fmt/format.h>

#include "schedules/error.h"
#include "schedules/units.h"

namespace pw {
namespace {

constexpr std::chrono::seconds kClosing{5};
constexpr std::string_view kMemoryCure = "; use smaller microbatches, more stages or a machine with more memory";

/// Removes all `[… .cpp:78] ` and `[enforce fail at x.cpp:127] `: places in the source of libraries.
void removePlaces(std::string& text) {
  for (std::size_t begin = 0; (begin = text.find('[', begin)) != std::string::npos;) {
    const std::size_t end = text.find(']', begin);
    if (end == std::string::npos) return;
    const std::string_view inside = std::string_view(text).substr(begin, end - begin);
    const bool place = inside.find(".cpp:") != std::string_view::npos || inside.find(".cc:") != std::string_view::npos ||
                       inside.find(".h:") != std::string_view::npos;
    if (place)
      text.erase(begin, end + 1 - begin + (text.substr(end + 1, 1) == " " ? 1 : 0));
    else
      ++begin;
  }
}

bool isAboutMemory(std::string_view text) {
  return text.find("can't allocate memory") != std::string_view::npos || text.find("not enough memory") != std::string_view::npos ||
         text.find("bad_alloc") != std::string_view::npos;
}

/// The allocator's message, which may come after the name of the operator that needed the memory.
std::string outOfMemory(std::string_view text) {
  const std::size_t failed = text.find(" failed: ");
  std::string sentence = "out of memory";
  if (failed != std::string_view::npos) sentence += fmt::format(" in {}", text.substr(0, failed));
  constexpr std::string_view kTried = "tried to allocate ";
  if (const std::size_t tried = text.find(kTried); tried != std::string_view::npos) {
    Bytes bytes = 0;
    std::from_chars(text.data() + tried + kTried.size(), text.data() + text.size(), bytes.value);
    if (bytes > 0) sentence += fmt::format(", {} {} more", failed == std::string_view::npos ? "for" : "which requested", formatSize(bytes));
  }
  return sentence.append(kMemoryCure);
}

}  // namespace

std::string causeOf(const std::exception& exception) {
  if (dynamic_cast<const std::bad_alloc*>(&exception) != nullptr) return outOfMemory("");
  std::string text = exception.what();
  text.erase(std::min(text.find('\n'), text.size()));
  if (isAboutMemory(text)) return outOfMemory(text);
  removePlaces(text);
  return text;
}

void failRank(const RankEnvironment& environment, const std::exception& exception, int (*complain)(std::string_view sentence, int status)) {
  const bool unusable = dynamic_cast<const UsageError*>(&exception) != nullptr;
  std::string sentence = causeOf(exception);
  if (!sentence.starts_with("Rank ")) sentence = fmt::format("Rank {}: {}", environment.rank.value, sentence);
  if (environment.statusFd >= 0) {
    reportFailure(environment, sentence, unusable);
    std::fflush(stdout);
    std::_Exit(unusable ? 2 : 1);  // no destructors: they might wait for peers
  }
  const int status = complain(sentence, unusable ? 2 : 1);
  std::thread([status] {
    std::this_thread::sleep_for(kClosing);
    std::_Exit(status);
  }).detach();
  throw RankFailed{status};
}

void throwUnlessOk(const LaunchResult& result) {
  if (result.ok) return;
  if (result.interrupted) throw Interrupted("Interrupted; all ranks have ended.");
  if (result.unusable) throw UsageError(result.failure);
  throw Error(result.failure);
}

}  // namespace pw
