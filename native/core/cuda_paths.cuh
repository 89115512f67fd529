// SPDX-License-Identifier: Apache-2.0
// What a path on CUDA is asked where the choice, or the launch, depends on the device.
#pragma once

#include "core/cuda_launch.cuh"
#include "core/paths.h"

namespace baracuda {

template <class Problem, class Buffers>
struct DeviceRequest : Request<Problem, Buffers> {
  DeviceTraits device;
};

namespace {

// Answers use(request) for the stream's device.
template <class Problem, class Buffers, class Use>
Status with_device(const Request<Problem, Buffers>& request, const Use& use) {
  DeviceTraits device;
  BARACUDA_RETURN_IF_FAILED(device_traits(&device));
  return use(DeviceRequest<Problem, Buffers>{request, device});
}

}  // namespace
}  // namespace baracuda
