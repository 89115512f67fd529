// SPDX-License-Identifier: Apache-2.0
// Where the elements of a row of the wide image stand in the deep one, shared by both backends.
#pragma once

#include <cstdint>

#include "core/host_device.h"
#include "ops/pixel_shuffle/problem.h"

namespace baracuda::pixel_shuffle {
namespace {

// A row of the wide image takes turns among `factor` rows of the deep one: element w f + j is element w of row j. Of
// the wide row (image and channel, h, i) the first deep row begins at channel (channel f + i) f, row h; the others
// follow plane by plane.
BARACUDA_HD int64_t first_deep_row(const Problem& p, int64_t plane, int32_t h, int32_t i) {
  const int64_t deep_plane = (plane * p.factor + i) * p.factor;
  return (deep_plane * p.h + h) * p.w;
}

// From one of these deep rows to the next.
BARACUDA_HD int64_t deep_plane_numel(const Problem& p) { return static_cast<int64_t>(p.h) * p.w; }

}  // namespace
}  // namespace baracuda::pixel_shuffle
