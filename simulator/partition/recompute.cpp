#include "simulator/partition/recompute.h"

namespace pw {
namespace {

struct Words {
  std::vector<std::string> operator()(const RecomputeAuto&) const { return {"auto"}; }
  std::vector<std::string> operator()(const RecomputeFull&) const { return {"full"}; }
  std::vector<std::string> operator()(const RecomputeNone&) const { return {"none"}; }
  std::vector<std::string> operator()(const RecomputeModules& modules) const { return modules.names; }
};

}  // namespace

std::vector<std::string> wordsOf(const Recompute& recompute) { return std::visit(Words(), recompute); }

Recompute parseRecompute(const std::vector<std::string>& words) {
  if (words.empty()) return RecomputeNone();
  for (const Recompute& choice : {Recompute(RecomputeAuto()), Recompute(RecomputeFull()), Recompute(RecomputeNone())}) {
    if (words == wordsOf(choice)) return choice;
  }
  return RecomputeModules{words};
}

}  // namespace pw
