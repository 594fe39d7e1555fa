#pragma once

#include <functional>
#include <vector>

#include "simulator/search/evaluate.h"
#include "simulator/search/search.h"

namespace pw {

/// The candidate with its ranks in other orders, best first by `Evaluator::isBetterCut`, each with the candidate's splits or those balanced
/// for the speeds of its ranks, whichever are better. Of all orders where there are few (150, ranks that are alike not told apart),
/// otherwise of those reached by exchanging two ranks as long as that is better, within some seconds' work, counted in actions and so the
/// same everywhere. As many as are worth improving: all where `cuts`, in how many ways the model can be cut, is small enough, else two.
/// `shouldContinue` is called before every try. Ties: the first tried. The candidate alone where the order does not matter.
[[nodiscard]] std::vector<Candidate> withRankOrders(const SearchShape& shape, const Candidate& start, double cuts,
                                                    const std::function<bool()>& shouldContinue);

/// By how much longer each stage takes on its rank than the profile says; empty where all ranks are alike.
[[nodiscard]] StageSpeeds speedsOf(const SearchShape& shape);

}  // namespace pw
