#pragma once

// Damaged files for every reader: JSON text changed as JSON and as text, and a loop that distinguishes a reader's refusals from its bugs.

#include <cstddef>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <random>
#include <string>

namespace pw::test {

/// One change of the document's structure: another value, a value taken away, doubled, swapped with another, or a member renamed.
void changeStructure(nlohmann::ordered_json& json, std::mt19937_64& random);

/// One change that no JSON writer makes: a number beyond all types, a member twice, bytes that are no text, nesting, an end too soon.
void changeText(std::string& text, std::mt19937_64& random);

/// The JSON document with up to three changes of structure, and every other time one of its text.
[[nodiscard]] std::string damaged(const std::string& document, std::mt19937_64& random);

/// How often a reader refused and accepted.
struct Survived {
  std::size_t refused = 0, accepted = 0;
};

/// How many damaged files each reader gets: PW_MUTATIONS, else `usual`.
[[nodiscard]] std::size_t mutations(std::size_t usual);

/// Gives `read` that many texts of `make`; it reads and uses them, or throws Error in one sentence of our own words. The seed of every text
/// is its number, so that one can be made again: PW_MUTATION_FIRST=N begins with it, PW_MUTATION_TRACE=1 says each number before it is
/// read.
Survived survive(const std::string& name, std::size_t count, const std::function<std::string(std::mt19937_64&)>& make,
                 const std::function<void(const std::string&)>& read);

}  // namespace pw::test
