#pragma once

#include <vector>

#include "simulator/costs/uncertainty.h"
#include "simulator/search/search.h"

namespace pw {

/// The order of `Found`; a strict weak order of all that a search can find.
[[nodiscard]] bool isBetter(const Candidate& a, const Candidate& b);

/// Brings candidates into that order, removes those whose splits became equal while they were moved, and marks the others as below.
void rankCandidates(std::vector<Candidate>& candidates);

/// Sets `leads` of the candidates, which are in the order of Found.
void markLeads(std::vector<Candidate>& candidates);

/// Marks the Pareto front of samples per second and peak memory; of equal ones the first.
void markFront(std::vector<Candidate>& candidates);

/// Whether the error bars of what the candidates take for a sample overlap, so that which is faster is not known.
[[nodiscard]] bool areIndistinguishable(const Uncertainty& uncertainty, const Candidate& a, const Candidate& b);

}  // namespace pw
