#pragma once

#include "schedules/schedule.h"
#include "simulator/report/certificate.h"
#include "simulator/step/cost_table.h"

namespace pw {

/// An order made for a problem's costs.
struct FoundOrder {
  Schedule schedule;  ///< called `auto`
  CostTable costs;    ///< the problem's, with what is recomputed
  Certificate certificate;

  bool operator==(const FoundOrder&) const = default;
};

}  // namespace pw
