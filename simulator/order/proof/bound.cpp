#include "simulator/order/proof/bound.h"

#include "simulator/order/proof/windows.h"

namespace pw {
namespace {

constexpr std::size_t kMostCounts = 4'000'000;

}  // namespace

Ns windowBound(const OrderModel& model, Ns lower, Ns upper) {
  if (lower >= upper || model.actions() > kMostWindowActions || model.actions() * model.classes.size() > kMostCounts) return lower;
  Windows windows(model);
  if (!windows.hold(upper - 1)) return upper;
  const Ns close = upper / 5000;
  Ns impossible = lower - 1, possible = upper - 1;  // as far as is known
  while (possible - impossible > 1 + close) {
    const Ns middle = impossible + (possible - impossible) / 2;
    (windows.hold(middle) ? possible : impossible) = middle;
  }
  return impossible + 1;
}

}  // namespace pw
