// SPDX-License-Identifier: Apache-2.0
// Scattered taps on CUDA: a row's two come in one load of 16 bytes where both lie in it, so that a multiprocessor's
// cache looks up fewer lines. The sectors that the second cache sends remain, and are what such samples wait for most.
#pragma once

#include <cstring>

#include "core/dtype.h"
#include "ops/grid_sample/problem.h"

namespace baracuda::grid_sample {
namespace {

constexpr int kPacketBytes = 16;
// Of the 128-byte lines of a warp's first taps, from how many on they count as scattered: nearby samples share loads of
// single taps, which need no selection.
constexpr int kScatteredLines = 16;

// The values of an aligned packet.
template <typename T>
struct Packet {
  static constexpr int kValues = kPacketBytes / static_cast<int>(sizeof(T));
  uint32_t words[4];

  __device__ __forceinline__ static Packet load(const T* from) {
    const uint4 all = *reinterpret_cast<const uint4*>(from);
    return {{all.x, all.y, all.z, all.w}};
  }
  // The value at a place that the caller does not know when it is compiled, without memory.
  __device__ __forceinline__ uint32_t word(int place) const {
    const uint32_t low = place & 1 ? words[1] : words[0], high = place & 1 ? words[3] : words[2];
    return place & 2 ? high : low;
  }
};

template <typename T>
struct TapPair {
  T first, second;
};

// How a sample's two taps in a row of pixels are read, and what was read last.
template <typename T>
struct TapRow {
  using C = Compute<T>;
  static constexpr int kValues = Packet<T>::kValues;
  const T* packet;  // that holds the first tap; if there is none, the second; if there is none, the plane's first
  int32_t place;   // of the first tap in the packet; the second follows it, and alone may be at 0
  bool crosses;    // the second lies in the next packet
  Packet<T> values;
  T next_value;

  // In the channel of `plane`; `pixel` is where the first tap lies or would lie.
  __device__ __forceinline__ TapRow(const T* plane, const T* pixel, C weight, C next_weight) {
    const bool first = weight != C(0), second = next_weight != C(0);
    const T* const tap = first ? pixel : pixel + 1;
    const int32_t of_tap = static_cast<int32_t>(reinterpret_cast<uintptr_t>(tap) / sizeof(T) % kValues);
    packet = first || second ? tap - of_tap : plane;
    place = first ? of_tap : of_tap - 1;
    crosses = first && second && of_tap == kValues - 1;
    load();
  }

  __device__ __forceinline__ void load_next(int64_t pixels) {
    packet += pixels;
    load();
  }

  // A tap that does not exist is not to be used, whatever it holds.
  __device__ __forceinline__ TapPair<T> taps() const {
    TapPair<T> pair{};
    if constexpr (sizeof(T) == 4) {
      const uint32_t words[2] = {values.word(place), values.word(place + 1)};
      memcpy(&pair.first, &words[0], sizeof(T));
      memcpy(&pair.second, &words[1], sizeof(T));
    } else {
      const int word = place >> 1;
      const uint32_t both = __funnelshift_r(values.word(word), values.word(word + 1), (place & 1) * 16);
      pair.first = T{static_cast<uint16_t>(both)};
      pair.second = T{static_cast<uint16_t>(both >> 16)};
    }
    if (crosses) pair.second = next_value;
    return pair;
  }

 private:
  __device__ __forceinline__ void load() {
    values = Packet<T>::load(packet);
    if (crosses) next_value = packet[kValues];
  }
};

// Whether a packet never reaches beyond the images, and every plane starts on one.
template <typename T>
__device__ __forceinline__ bool fills_packets(const Problem& p, const T* input) {
  return p.pixels > 0 && p.pixels * static_cast<int64_t>(sizeof(T)) % kPacketBytes == 0 &&
         reinterpret_cast<uintptr_t>(input) % kPacketBytes == 0;
}

// Whether the first taps of a warp's lanes, those of `lanes`, are scattered.
template <typename T>
__device__ __forceinline__ bool are_scattered(unsigned lanes, const T* pixel) {
  const uint32_t line = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(pixel) / 128);
  return __popc(__ballot_sync(lanes, __shfl_up_sync(lanes, line, 1) != line)) >= kScatteredLines;
}

}  // namespace
}  // namespace baracuda::grid_sample
