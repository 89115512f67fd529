// SPDX-License-Identifier: Apache-2.0
// Which segment a row has, from its id.
#pragma once

#include <cstdint>

#include "core/host_device.h"

namespace baracuda::segment {
namespace {

// An id's bits as an unsigned number: a negative id is a large one, and the upper half of a 64-bit id counts.
BARACUDA_HD uint64_t unsigned_id(int32_t id) { return static_cast<uint32_t>(id); }
BARACUDA_HD uint64_t unsigned_id(int64_t id) { return static_cast<uint64_t>(id); }

// A row's sort key: its segment, or num_segments for a row that belongs to none.
BARACUDA_HD int32_t key_of(uint64_t id, int32_t num_segments) {
  return id < static_cast<uint64_t>(num_segments) ? static_cast<int32_t>(id) : num_segments;
}

}  // namespace
}  // namespace baracuda::segment
