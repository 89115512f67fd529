// SPDX-License-Identifier: Apache-2.0
// Stands in for the header of the same name in native/.
#pragma once

#include "device.h"

namespace baracuda {
namespace {

template <typename T>
inline T* dynamic_shared() {
  return static_cast<T*>(emulation::dynamic_shared_memory());
}

}  // namespace
}  // namespace baracuda
