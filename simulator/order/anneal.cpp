#include "simulator/order/anneal.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <utility>

#include "simulator/order/problem/index.h"

namespace pw {
namespace {

/// A rank's actions that follow each other on the critical path: positions in its row.
struct Block {
  Rank rank;
  std::size_t first = 0, last = 0;
};

class Annealer {
 public:
  Annealer(const OrderModel& model, const OrderRows& start, const AnnealOptions& options);
  OrderRows run();

 private:
  static constexpr double kCooling = 0.01;  ///< last temperature, of the first
  static constexpr int kRepairs = 8;

  [[nodiscard]] std::size_t below(std::size_t bound) { return static_cast<std::size_t>(random_() % bound); }
  [[nodiscard]] double fraction() { return static_cast<double>(random_() >> 11) * 0x1p-53; }
  [[nodiscard]] std::size_t positionOf(ClassId actionClass, Microbatch m) const {
    return position_[model_.actionOf(actionClass, m).index()];
  }
  [[nodiscard]] std::vector<ActionId>& rowOf(Rank rank) { return rows_[rank.index()]; }
  [[nodiscard]] OrderTimer& timer() { return timers_[current_]; }
  [[nodiscard]] OrderTimer& trialTimer() { return timers_[1 - current_]; }
  void begin(Rank rank);
  [[nodiscard]] std::size_t earliest(ActionId action) const;
  [[nodiscard]] std::size_t latest(ActionId action, std::size_t size) const;
  void traceBlocks();
  void note(Rank rank);
  [[nodiscard]] bool fitsAll() const { return std::ranges::find(fits_, false) == fits_.end(); }
  void shift(std::size_t from, std::size_t to);
  void move(std::size_t from, std::size_t to);
  bool moveInBlock();
  bool moveAnywhere();
  bool moveClass();
  bool moveWithin(Rank rank, std::size_t from, std::size_t to);
  bool repair();
  void restore();

  const OrderModel& model_;
  const AnnealOptions& options_;
  std::array<OrderTimer, 2> timers_;  ///< of the current rows, and of those tried
  std::size_t current_ = 0;
  OrderRows rows_;
  std::vector<std::size_t> position_;  ///< by action, in its row
  std::vector<Block> blocks_;
  std::vector<std::vector<Held>> held_;  ///< by rank and position, in the current rows
  std::vector<bool> fits_;               ///< by rank: so does its current row

  // Of the move that is tried: what it does to one row, and which positions change.
  Rank changed_;
  std::vector<std::pair<std::size_t, std::size_t>> shifts_;  ///< from, to
  std::size_t first_ = 0, last_ = 0;
  std::mt19937_64 random_;
};

Annealer::Annealer(const OrderModel& model, const OrderRows& start, const AnnealOptions& options)
    : model_(model),
      options_(options),
      timers_{OrderTimer(model), OrderTimer(model)},
      rows_(start),
      position_(model.actions()),
      fits_(start.size()),
      random_(options.seed) {
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) position_[row[i].index()] = i;
    held_.emplace_back(row.size());
    note(Rank(held_.size() - 1));
  }
}

/// The first position that an action may take in its row.
std::size_t Annealer::earliest(ActionId action) const {
  const ClassId of = model_.classOf(action);
  const Microbatch m = model_.microbatchOf(action);
  std::size_t first = m.value > 0 ? positionOf(of, Microbatch(m.value - 1)) + 1 : 0;
  for (const ClassId before : model_.classes[of.index()].before) first = std::max(first, positionOf(before, m) + 1);
  return first;
}

std::size_t Annealer::latest(ActionId action, std::size_t size) const {
  const ClassId of = model_.classOf(action);
  const Microbatch m = model_.microbatchOf(action);
  std::size_t last = m.value + 1 < model_.microbatches ? positionOf(of, Microbatch(m.value + 1)) - 1 : size - 1;
  for (const ClassId after : model_.classes[of.index()].after) last = std::min(last, positionOf(after, m) - 1);
  return last;
}

/// The critical path of the times just computed, from its end.
void Annealer::traceBlocks() {
  blocks_.clear();
  Rank rank = timer().latestRank();
  std::size_t last = rowOf(rank).size() - 1, i = last;
  for (;;) {
    const ActionId cause = timer().causeOf(rowOf(rank)[i]);
    if (cause == kNoAction && i > 0) {
      --i;
      continue;
    }
    if (last > i) blocks_.push_back({rank, i, last});
    if (cause == kNoAction) return;
    rank = model_.rankOf(cause);
    i = last = position_[cause.index()];
  }
}

/// Of a row that is now current.
void Annealer::note(Rank rank) {
  const auto& row = rowOf(rank);
  Held held;
  std::size_t i = 0;
  for (; i < row.size(); ++i) {
    held_[rank.index()][i] = held;
    if (firstExcess(model_, rank, row, i, i + 1, held) == i) break;
  }
  fits_[rank.index()] = i == row.size();
}

/// Begins a move. A row that does not fit is repaired all over.
void Annealer::begin(Rank rank) {
  const std::size_t size = rowOf(rank).size();
  const bool fits = fits_[rank.index()];
  changed_ = rank;
  shifts_.clear();
  first_ = fits ? size : 0;
  last_ = fits ? 0 : size - 1;
}

void Annealer::shift(std::size_t from, std::size_t to) {
  auto& row = rowOf(changed_);
  const auto place = [&](std::size_t i) { return row.begin() + static_cast<std::ptrdiff_t>(i); };
  if (from < to) {
    std::rotate(place(from), place(from + 1), place(to + 1));
  } else {
    std::rotate(place(to), place(from), place(from + 1));
  }
  for (std::size_t i = std::min(from, to); i <= std::max(from, to); ++i) position_[row[i].index()] = i;
}

void Annealer::move(std::size_t from, std::size_t to) {
  shift(from, to);
  shifts_.emplace_back(from, to);
  first_ = std::min({first_, from, to});
  last_ = std::max({last_, from, to});
}

/// Pulls what frees memory to where it runs out. False: nothing helps.
bool Annealer::repair() {
  const auto& row = rowOf(changed_);
  for (int tried = 0;; ++tried) {
    Held held = held_[changed_.index()][first_];
    const std::size_t excess = firstExcess(model_, changed_, row, first_, last_ + 1, held);
    if (excess > last_) return true;  // what comes after the moved ones holds as much as before
    if (tried == kRepairs) return false;
    std::size_t i = excess + 1;
    for (; i < row.size(); ++i) {
      const OrderModel::ActionClass& of = model_.classes[model_.classOf(row[i]).index()];
      if ((of.use.loss > 0 || of.use.died > 0) && earliest(row[i]) <= excess) break;
    }
    if (i == row.size()) return false;
    move(i, excess);
  }
}

bool Annealer::moveWithin(Rank rank, std::size_t from, std::size_t to) {
  const auto& row = rowOf(rank);
  to = std::clamp(to, earliest(row[from]), latest(row[from], row.size()));
  if (to == from) return false;
  begin(rank);
  move(from, to);
  if (repair()) return true;
  restore();
  return false;
}

void Annealer::restore() {
  for (auto made = shifts_.rbegin(); made != shifts_.rend(); ++made) shift(made->second, made->first);
}

bool Annealer::moveInBlock() {
  const Block block = blocks_[below(blocks_.size())];
  const std::size_t size = block.last - block.first;
  if (random_() % 2 == 0) {
    const std::size_t from = block.first + 1 + below(size);
    return moveWithin(block.rank, from, random_() % 4 == 0 ? from - 1 : block.first);
  }
  const std::size_t from = block.first + below(size);
  return moveWithin(block.rank, from, random_() % 4 == 0 ? from + 1 : block.last);
}

bool Annealer::moveAnywhere() {
  const Rank rank(below(rows_.size()));
  const std::size_t size = rowOf(rank).size();
  if (size < 2) return false;
  const std::size_t from = below(size);
  std::size_t far = 1;
  while (random_() % 4 != 0) ++far;
  return moveWithin(rank, from, random_() % 2 == 0 ? from - std::min(from, far) : std::min(size - 1, from + far));
}

/// Moves all actions of a class, or those of a range of microbatches, the same way: what repeats changes everywhere at once.
bool Annealer::moveClass() {
  const Rank rank(below(rows_.size()));
  const auto& row = rowOf(rank);
  if (row.size() < 2) return false;
  const ClassId of = model_.classOf(row[below(row.size())]);
  std::size_t first = below(at(model_.microbatches)), last = below(at(model_.microbatches));
  if (first > last) std::swap(first, last);
  if (random_() % 2 == 0) first = 0;
  if (random_() % 2 == 0) last = at(model_.microbatches) - 1;
  std::size_t far = 1;
  while (random_() % 3 == 0) ++far;
  const bool ahead = random_() % 2 == 0;
  begin(rank);
  for (std::size_t i = first; i <= last; ++i) {
    const ActionId action = model_.actionOf(of, Microbatch(ahead ? i : last - (i - first)));
    const std::size_t from = position_[action.index()];
    const std::size_t to =
        std::clamp(ahead ? from - std::min(from, far) : std::min(row.size() - 1, from + far), earliest(action), latest(action, row.size()));
    if (to == from) continue;
    move(from, to);
  }
  if (!shifts_.empty() && repair()) return true;
  restore();
  return false;
}

OrderRows Annealer::run() {
  if (!timer().run(rows_)) return rows_;
  OrderRows best = rows_;
  Ns bestObjective = timer().objective();
  double bestEnergy = timer().energy();
  bool bestFits = fitsAll();
  timer().measureTails(rows_);
  traceBlocks();
  double temperature = std::max(1e-9, model_.meanDuration() * options_.hottest);
  const double fall = std::pow(kCooling, 1.0 / static_cast<double>(std::max<std::int64_t>(1, options_.trials)));
  for (std::int64_t trial = 0; trial < options_.trials && (bestObjective > options_.enough || !bestFits); ++trial, temperature *= fall) {
    if (trial % AnnealOptions::kAskEvery == 0 && options_.shouldContinue && !options_.shouldContinue()) break;
    const std::uint64_t kind = random_() % 16;
    const bool everywhere = kind < 2;
    const bool moved = everywhere ? moveClass() : kind < 4 || blocks_.empty() ? moveAnywhere() : moveInBlock();
    if (!moved) continue;
    // The most that is accepted: whatever it takes, where a row fits at last.
    const bool makesFit = !fits_[changed_.index()];
    const double rise = makesFit ? std::numeric_limits<double>::infinity() : -temperature * std::log(1 - fraction());
    // Most moves lengthen some path. That is seen at once, unless they change so much that the paths are others.
    if (!everywhere && !makesFit &&
        static_cast<double>(timer().estimate(rowOf(changed_), changed_, first_, last_) - timer().objective()) > rise) {
      restore();
      continue;
    }
    if (!trialTimer().run(rows_) || trialTimer().energy() - timer().energy() > rise) {
      restore();
      continue;
    }
    current_ = 1 - current_;
    note(changed_);
    timer().measureTails(rows_);
    traceBlocks();
    const bool fits = fitsAll(),
               isFaster = timer().objective() < bestObjective || (timer().objective() == bestObjective && timer().energy() < bestEnergy);
    if (fits == bestFits ? isFaster : fits) {
      bestFits = fits;
      bestObjective = timer().objective();
      bestEnergy = timer().energy();
      best = rows_;
    }
  }
  return best;
}

}  // namespace

OrderRows annealOrder(const OrderModel& model, const OrderRows& start, const AnnealOptions& options) {
  return Annealer(model, start, options).run();
}

}  // namespace pw
