// SPDX-License-Identifier: Apache-2.0
// Sums of any kind, by aligned vectors of the destination: a vector of elements that have one source each is copied;
// the elements of the others are added up one by one.
#pragma once

#include "ops/pad/cuda/slice.cuh"
#include "ops/pad/sums.h"

namespace baracuda::pad {
namespace {

constexpr int kSumThreads = 256;

// A vector that is no copy, as its words' later owners need it.
struct Edge {
  char* destination;  // of word 0
  int32_t first;      // word 0 among the slice's elements
  int16_t begin, end;
};

// Places are products of at most this many axes; more are rare enough for local memory.
constexpr int kSumAxes = 3;

template <typename T>
__device__ __noinline__ T sum_over_many_axes(const Slice<T>& s, const uint32_t* indices, int64_t source) {
  Steps steps[kMaxRank];
#pragma unroll 1
  for (int a = 0; a < s.rank; ++a) {
    const DeviceAxis& axis = s.axes[a];
    if (axis.repeats) steps[axis.place] = {preimages_of(axis.padded, indices[a] - axis.origin), axis.source_stride};
  }
  const auto load = [&s](int64_t place) { return *reinterpret_cast<const T*>(s.source + place); };
  return sum_over<T>(steps, s.repeating, source, load);
}

// One element, added up.
template <typename T>
__device__ __forceinline__ T sum_element(const Slice<T>& s, uint32_t element) {
  // The outermost axis of the sum first. Where there are fewer, the others have one place, which costs nothing.
  Steps steps[kSumAxes];
#pragma unroll
  for (int j = 0; j < kSumAxes; ++j) steps[j] = {{0, 1, 0, 0}, 0};
  int64_t source = 0;
  uint32_t rest = element;
  uint32_t indices[kMaxAxes];
#pragma unroll
  for (int a = 0; a < kMaxAxes; ++a) {
    if (a >= s.rank) break;
    const DeviceAxis& axis = s.axes[a];
    const uint32_t above = axis.extent.divide(rest);
    const uint32_t index = rest - above * axis.extent.divisor;
    rest = above;
    if (s.repeating > kSumAxes) indices[a] = index;
    if (!axis.repeats) {
      const uint32_t offset = index - axis.begin;
      if (offset >= axis.count) return T{};
      source += static_cast<int32_t>(offset) * axis.source_stride;
      continue;
    }
    const uint32_t kept = index - axis.origin;
    if (kept >= axis.padded.kept) return T{};
    source -= static_cast<int64_t>(axis.first) * axis.source_stride;
    if (s.repeating > kSumAxes) continue;
    const Preimages places = preimages_of(axis.padded, kept);
#pragma unroll
    for (int j = 0; j < kSumAxes; ++j) {
      if (axis.place == j) steps[j] = {places, axis.source_stride};
    }
  }
  if (s.repeating > kSumAxes) return sum_over_many_axes(s, indices, source);
  const auto load = [&s](int64_t place) { return *reinterpret_cast<const T*>(s.source + place); };
  Sum<T> sum;
  for_each_place(steps[0], source, [&](int64_t plane) {
    for_each_place(steps[1], plane, [&](int64_t row) { add_along(steps[2], row, load, &sum); });
  });
  return sum.result();
}

// Sums of any kind.
template <typename T>
__global__ void __launch_bounds__(kSumThreads) write_sums(const __grid_constant__ Slice<T> s) {
  constexpr int32_t kWords = kVectorBytes / sizeof(T);
  __shared__ Edge edges[kSumThreads];
  __shared__ int32_t edge_count;
  if (threadIdx.x == 0) edge_count = 0;
  __syncthreads();
  const uint32_t thread = blockIdx.x * kSumThreads + threadIdx.x;
  if (thread < s.threads) {
    const Run<T> run = run_of<false>(s, thread);
    const Span span = span_of<T>(run.slot, run.destination, s.run_extent);
    if (span.begin < span.end && !copy_vector(s, span, pieces_of<false>(s, span, run.row))) {
      const int32_t first = static_cast<int32_t>(run.number * s.run_extent) + span.first;
      // Whoever comes first: every word has one owner all the same.
      edges[atomicAdd(&edge_count, 1)] = {span.destination, first, static_cast<int16_t>(span.begin),
                                          static_cast<int16_t>(span.end)};
    }
  }
  __syncthreads();
  // Few vectors are at an edge, and a warp is as slow as its slowest thread: so their words are dealt out anew.
  const int32_t words = edge_count * kWords;
#pragma unroll 1
  for (int32_t word = static_cast<int32_t>(threadIdx.x); word < words; word += kSumThreads) {
    const Edge edge = edges[word / kWords];
    const int32_t k = word % kWords;
    if (k < edge.begin || k >= edge.end) continue;
    reinterpret_cast<T*>(edge.destination)[k] = sum_element(s, static_cast<uint32_t>(edge.first + k));
  }
}

}  // namespace
}  // namespace baracuda::pad
