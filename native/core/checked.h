// SPDX-License-Identifier: Apache-2.0
// Arithmetic on extents that cannot wrap, and the argument checks every problem shares. Host code only.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/status.h"

namespace baracuda {

// Product of extents (each >= 0) as an element count, valid only while the bytes also fit in a signed 64-bit offset.
class CheckedCount {
 public:
  explicit CheckedCount(int64_t element_bytes) : limit_(INT64_MAX / element_bytes) {}

  CheckedCount& times(int64_t extent) {
    if (extent == 0) has_zero_ = true;
    if (!has_zero_ && !overflowed_) {
      if (extent > limit_ / value_) {
        overflowed_ = true;
      } else {
        value_ *= extent;
      }
    }
    return *this;
  }

  // A zero extent anywhere makes the tensor empty, however large the others are.
  bool fits() const { return has_zero_ || !overflowed_; }
  int64_t value() const { return has_zero_ ? 0 : value_; }

 private:
  int64_t limit_;
  int64_t value_ = 1;
  bool has_zero_ = false;
  bool overflowed_ = false;
};

// Status 2 unless low <= value <= high.
inline Status check_range(const char* name, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return Status::kOk;
  return fail(Status::kInvalidProblem, "%s is %lld; wanted %lld..%lld", name, static_cast<long long>(value),
              static_cast<long long>(low), static_cast<long long>(high));
}

// Status 2 unless the extent is at least 0.
inline Status check_extent(const char* name, int64_t value) {
  if (value >= 0) return Status::kOk;
  return fail(Status::kInvalidProblem, "%s is %lld; wanted at least 0", name, static_cast<long long>(value));
}

// Status 2 when a tensor's bytes do not fit in 63 bits, else its element count.
inline Status check_count(const char* tensor, const CheckedCount& count, int64_t* out) {
  if (!count.fits()) {
    return fail(Status::kInvalidProblem, "%s is too large: its size in bytes overflows 2^63 - 1", tensor);
  }
  *out = count.value();
  return Status::kOk;
}

// Status 2 for a NULL host array.
inline Status check_host_array(const char* name, const void* pointer) {
  if (pointer != nullptr) return Status::kOk;
  return fail(Status::kInvalidProblem, "%s is NULL; wanted a host array", name);
}

// Status 2 for an output that shares an element with another operand.
inline Status fail_for_overlap(const char* output, const char* other) {
  return fail(Status::kInvalidProblem, "%s shares memory with %s; wanted an output that shares no element", output,
              other);
}

}  // namespace baracuda

// Leaves the enclosing function with the first status that is not ok. Holds no other control flow.
#define BARACUDA_RETURN_IF_FAILED(expression)                                     \
  if (const ::baracuda::Status status_ = (expression); status_ != ::baracuda::Status::kOk) return status_
