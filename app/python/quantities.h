#pragma once
// Times [ns] and sizes are whole numbers in Python. Every source of the extension modules that passes one includes this.

#include <pybind11/pybind11.h>

#include <cstdint>

#include "schedules/quantity.h"

namespace pybind11::detail {

template <class Tag>
struct type_caster<pw::Quantity<Tag>> {
  PYBIND11_TYPE_CASTER(pw::Quantity<Tag>, const_name("int"));

  bool load(handle source, bool convert) {
    make_caster<std::int64_t> number;
    if (!number.load(source, convert)) return false;
    value = pw::Quantity<Tag>(cast_op<std::int64_t>(number));
    return true;
  }
  static handle cast(pw::Quantity<Tag> quantity, return_value_policy policy, handle parent) {
    return make_caster<std::int64_t>::cast(quantity.value, policy, parent);
  }
};

}  // namespace pybind11::detail
