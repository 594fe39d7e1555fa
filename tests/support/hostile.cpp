#include "tests/support/hostile.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "schedules/error.h"
#include "tests/support/counts.h"
#include "tests/support/mutate.h"

namespace pw::test {
namespace {

using HostileJson = nlohmann::ordered_json;

/// Where values stand in a document, outermost first.
void collectPlaces(HostileJson& json, std::vector<HostileJson*>& places) {
  places.push_back(&json);
  if (!json.is_structured()) return;
  for (auto& [key, value] : json.items()) collectPlaces(value, places);
}

HostileJson oddValue(std::mt19937_64& random) {
  static const std::vector<HostileJson> kOdd = {nullptr,
                                                true,
                                                false,
                                                "",
                                                "x",
                                                "\x1b[31m",
                                                "../../etc/passwd",
                                                HostileJson::array(),
                                                HostileJson::object(),
                                                {{{}}},
                                                -1,
                                                0,
                                                1,
                                                2,
                                                3,
                                                255,
                                                4096,
                                                1'000'000,
                                                2147483647,
                                                2147483648,
                                                4294967296,
                                                9223372036854775807,
                                                9223372036854775808U,
                                                18446744073709551615U,
                                                std::numeric_limits<std::int64_t>::min(),
                                                0.5,
                                                -0.0,
                                                1e-300,
                                                1e300,
                                                -1e300,
                                                4e18,
                                                std::string(5000, 'n')};
  return kOdd[static_cast<std::size_t>(draw(random, 0, static_cast<std::int64_t>(kOdd.size()) - 1))];
}

}  // namespace

void changeStructure(HostileJson& json, std::mt19937_64& random) {
  std::vector<HostileJson*> places;
  collectPlaces(json, places);
  const auto any = [&] { return places[static_cast<std::size_t>(draw(random, 0, static_cast<std::int64_t>(places.size()) - 1))]; };
  HostileJson& place = *any();
  const auto inside = [&](std::size_t size) { return static_cast<std::size_t>(draw(random, 0, static_cast<std::int64_t>(size) - 1)); };
  switch (draw(random, 0, 6)) {
    case 0:
    case 1: place = oddValue(random); break;
    case 2: {
      HostileJson copy = *any();  // by value: one place may lie in the other
      place = std::move(copy);
      break;
    }
    case 3:
      if (place.empty() || !place.is_structured()) break;
      if (place.is_array())
        place.erase(inside(place.size()));
      else
        place.erase(std::next(place.begin(), static_cast<std::ptrdiff_t>(inside(place.size()))));
      break;
    case 4:
      if (place.is_array()) {
        const HostileJson more = place.empty() ? oddValue(random) : HostileJson(place[inside(place.size())]);
        for (std::int64_t i = draw(random, 0, 3) == 0 ? 300 : 1; i > 0; --i) place.push_back(more);
      } else if (place.is_object()) {
        place["one more"] = oddValue(random);
      }
      break;
    case 5:
      if (place.is_array() && place.size() > 1) std::swap(place[inside(place.size())], place[inside(place.size())]);
      break;
    default:
      if (!place.is_object() || place.empty()) break;
      const auto member = std::next(place.begin(), static_cast<std::ptrdiff_t>(inside(place.size())));
      std::string key = member.key();
      HostileJson value = std::move(member.value());
      place.erase(member);
      place[std::move(key) + "_"] = std::move(value);
  }
}

void changeText(std::string& text, std::mt19937_64& random) {
  static const std::array<std::string, 14> kTokens = {"1e400",
                                                      "-1e400",
                                                      "NaN",
                                                      "Infinity",
                                                      "-",
                                                      "01",
                                                      "0x10",
                                                      "1.",
                                                      "1e-400",
                                                      "\"\\ud800\"",
                                                      "\"\xFF\xFE\"",
                                                      "\"\xC2\x9B\"",
                                                      "nul",
                                                      std::string(4000, '9')};
  if (text.empty()) return;
  const auto at = [&] { return static_cast<std::size_t>(draw(random, 0, static_cast<std::int64_t>(text.size()) - 1)); };
  const auto numberAt = [&](const std::string& by) {
    const std::size_t begin = text.find_first_of("0123456789", at());
    if (begin == std::string::npos) return;
    const std::size_t end = std::min(text.find_first_not_of("0123456789", begin), text.size());
    text.replace(begin, end - begin, by);
  };
  switch (draw(random, 0, 6)) {
    case 0: text.resize(at()); break;
    case 1: numberAt(kTokens[static_cast<std::size_t>(draw(random, 0, 13))]); break;
    case 2: {  // a member twice
      const std::size_t key = text.find('"', at()), end = key == std::string::npos ? key : text.find('"', key + 1);
      if (end != std::string::npos) text.insert(key, text.substr(key, end + 1 - key) + ": 1, ");
      break;
    }
    case 3: {
      constexpr std::array<std::int64_t, 5> kDepths = {100, 257, 1025, 20'000, 117'000};
      const auto depth = static_cast<std::size_t>(kDepths[static_cast<std::size_t>(draw(random, 0, oneIn(random, 8) ? 4 : 2))]);
      std::string nested;
      if (oneIn(random, 2))
        nested.assign(depth, '[');
      else
        for (std::size_t i = 0; i < depth; ++i) nested += "{\"a\":";
      if (oneIn(random, 2) && nested[0] == '[') nested += std::string(depth, ']');
      if (oneIn(random, 3))
        text = nested;
      else
        numberAt(nested);
      break;
    }
    case 4: text.insert(at(), 1, static_cast<char>(draw(random, 0, 31))); break;
    case 5: text[at()] = static_cast<char>(draw(random, 128, 255)); break;
    default: text = mutate(std::move(text), random);
  }
}

std::string damaged(const std::string& document, std::mt19937_64& random) {
  HostileJson json = HostileJson::parse(document);
  for (std::int64_t changes = draw(random, 0, 3); changes > 0; --changes) changeStructure(json, random);
  std::string text = json.dump(-1, ' ', false, HostileJson::error_handler_t::replace);
  if (oneIn(random, 2)) changeText(text, random);
  return text;
}

std::size_t mutations(std::size_t usual) { return countFrom("PW_MUTATIONS", usual); }

Survived survive(const std::string& name, std::size_t count, const std::function<std::string(std::mt19937_64&)>& make,
                 const std::function<void(const std::string&)>& read) {
  Survived survived;
  const char* const firstWanted = std::getenv("PW_MUTATION_FIRST");
  const std::size_t first = firstWanted == nullptr ? 0 : std::strtoull(firstWanted, nullptr, 10);
  const bool follows = std::getenv("PW_MUTATION_TRACE") != nullptr;
  for (std::size_t number = first; number < first + count; ++number) {
    std::mt19937_64 random(number);
    const std::string text = make(random);
    if (follows) std::cerr << name << " " << number << '\n' << std::flush;
    const auto fault = [&](const std::string& what) {
      ADD_FAILURE() << name << ", text " << number << ": " << what << "\n" << text.substr(0, 2000);
    };
    try {
      read(text);
      ++survived.accepted;
    } catch (const Error& e) {
      ++survived.refused;
      const std::string what = e.what();
      bool ours = !what.empty() && what.size() < 2000 && what.find('\n') == std::string::npos;
      for (const char* raw : {"json.exception", "std::", "basic_string", "bad_alloc", "filesystem error", "vector::", "SQL logic"})
        ours = ours && what.find(raw) == std::string::npos;
      if (!ours) fault("refused with \"" + what + "\"");
    } catch (const std::exception& e) {
      fault(std::string("threw a library's exception: ") + e.what());
    }
    if (::testing::Test::HasFailure()) break;
  }
  std::cout << name << ": " << survived.refused << " refused, " << survived.accepted << " accepted and used\n";
  return survived;
}

}  // namespace pw::test
