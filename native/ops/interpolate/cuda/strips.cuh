// SPDX-License-Identifier: Apache-2.0
// The gradient on CUDA. Threads that stand side by side have a window of the output's columns, a vector each, and walk
// down its rows with two running sums: of the input row above and of the one below. Where they pass an input row its
// sums are complete; they are laid out in shared memory, and summed along the width from there. So every element of the
// output is read once, but for those at the ends of windows and strips.
#pragma once

#include "core/cuda_division.cuh"
#include "core/cuda_launch.cuh"
#include "core/cuda_shared.cuh"
#include "ops/interpolate/cuda/columns.cuh"
#include "ops/interpolate/launch.h"
#include "ops/interpolate/math.h"

namespace baracuda::interpolate {
namespace {

constexpr int32_t kWindowThreads = 256;  // of a window, at most
constexpr int32_t kStripThreads = 128;   // of a block, about
constexpr int32_t kInputRows = 16;       // of a strip, at most
constexpr int64_t kWantedStrips = 4096;
// Input pixels of a segment, for each thread of its window.
constexpr int32_t kPixelsPerThread = 8;
// Planes that one block walks through one after the other where a plane is one row: what it prepares serves all.
constexpr int32_t kPlanesOfRows = 8;

// How a call is cut: blocks of `lanes` windows of `threads`, each window with the output columns of a segment of
// `pixels` input columns, over strips of `rows` input rows.
struct Strips {
  int32_t threads, lanes, pixels, segments, rows, strips, repeats;
  int64_t jobs;
  size_t shared_bytes;

  bool exists() const { return threads > 0; }
  uint32_t block() const { return static_cast<uint32_t>(groups_of(threads * lanes, 32) * 32); }
};

// Whether no sum along the axis is cut: these do not come here.
template <typename C, bool kLinear>
bool is_uncut(const Axis& axis) {
  if (axis.rule == Rule::kSame || axis.output <= kCut) return true;
  const Reach last = reach_of<C, kLinear>(axis, axis.input - 1), first = reach_of<C, kLinear>(axis, 0);
  // A scale may say less than the extents: then the last pixel has all that is left. Those between have two steps of
  // the inverse, and a rounding or two at either end, each less than a pixel below 2^22.
  return last.end - last.begin <= kCut && first.end - first.begin <= kCut && axis.output <= (1 << 22) &&
         2.0 * axis.inverse + 5.0 <= kCut;
}

// The vectors that the widest segment's window has.
template <typename C, bool kLinear>
int32_t window_of(const Axis& width, int32_t pixels, int32_t vector) {
  int32_t most = 0;
  for (int64_t first = 0; first < width.input; first += pixels) {
    const int32_t last = static_cast<int32_t>(at_most(first + pixels, width.input) - 1);
    const int32_t begin = first_at<C, kLinear>(width, static_cast<int32_t>(first) - (kLinear ? 1 : 0)) / vector;
    const int32_t end = static_cast<int32_t>(ceil_div(first_at<C, kLinear>(width, last + 1), vector));
    most = end - begin > most ? end - begin : most;
  }
  return most;
}

template <typename C, bool kLinear>
Strips strips_of(const Problem& p, int32_t vector) {
  Strips s{};
  const Axis& width = p.width();
  if (!is_uncut<C, kLinear>(p.depth()) || !is_uncut<C, kLinear>(p.height()) || !is_uncut<C, kLinear>(width)) return s;
  // The fewest segments of about equal width whose windows fit.
  int64_t segments = ceil_div(ceil_div(width.output, vector), kWindowThreads);
  segments = at_least(segments, ceil_div(width.input, kPixelsPerThread * kWindowThreads));
  int32_t threads = 0;
  for (;; segments += segments / 8 + 1) {
    s.pixels = static_cast<int32_t>(ceil_div(width.input, segments));
    threads = window_of<C, kLinear>(width, s.pixels, vector);
    if (threads <= kWindowThreads || s.pixels == 1) break;
  }
  if (threads > kWindowThreads) return s;
  threads = static_cast<int32_t>(at_least(threads, ceil_div(s.pixels, kPixelsPerThread)));
  s.threads = threads > 1 ? threads : 1;
  s.segments = static_cast<int32_t>(ceil_div(width.input, s.pixels));
  s.lanes = static_cast<int32_t>(at_least(kStripThreads / s.threads, 1));
  s.lanes = static_cast<int32_t>(at_most(s.lanes, p.planes()));
  const int64_t groups = ceil_div(p.planes(), s.lanes);
  s.repeats = p.input_rows() == 1 && groups > kWantedStrips ? kPlanesOfRows : 1;
  const int64_t above = ceil_div(groups, s.repeats) * p.depth().input * s.segments;
  const int32_t height = p.height().input;
  s.rows = kInputRows;
  while (s.rows > 4 && above * ceil_div(height, s.rows) < kWantedStrips) s.rows /= 2;
  s.strips = static_cast<int32_t>(ceil_div(height, s.rows));
  s.jobs = above * s.strips;
  const int64_t window = static_cast<int64_t>(s.threads) * vector;
  const int64_t numbers = (2 + 2 * s.lanes) * window + kCut;
  s.shared_bytes = static_cast<size_t>(numbers) * sizeof(C) + static_cast<size_t>(s.pixels + 2) * sizeof(int32_t);
  return s;
}

// What a block has in shared memory.
template <typename C>
struct StripMemory {
  C* low;         // [window]: weights of the columns, of their own pixel and of the next one
  C* high;
  C* depth;       // [kCut]: weights of the slices
  C* rows;        // [2][lanes][window]: sums of an input row, while the ones before are still read
  int32_t* start; // [pixels + 2]: where the output columns of a pixel begin

  __device__ StripMemory(unsigned char* memory, int32_t window, int32_t lanes) {
    rows = reinterpret_cast<C*>(memory);
    low = rows + 2 * lanes * window;
    high = low + window;
    depth = high + window;
    start = reinterpret_cast<int32_t*>(depth + kCut);
  }
};

// Writes a vector's sums side by side, 16 bytes at a time where they are as many.
template <typename C, int kCount>
__device__ __forceinline__ void lay_out(const C (&sums)[kCount], C* to) {
  constexpr int kPiece = kCount * sizeof(C) % kVectorBytes == 0 ? kVectorBytes / sizeof(C) : 1;
#pragma unroll
  for (int k = 0; k < kCount; k += kPiece) {
    Vector<C, kPiece> piece;
#pragma unroll
    for (int i = 0; i < kPiece; ++i) piece.elements[i] = sums[k + i];
    *reinterpret_cast<Vector<C, kPiece>*>(to + k) = piece;
  }
}

template <typename T, int kCount, bool kLinear, bool kVolume>
__global__ void __launch_bounds__(kWindowThreads)
    sum_strips(const __grid_constant__ Problem p, const __grid_constant__ BackwardBuffers<T> b,
               const __grid_constant__ Strips s) {
  using C = Compute<T>;
  unsigned char* const memory = dynamic_shared<unsigned char>();
  constexpr int32_t kNext = kLinear ? 1 : 0;  // whether a pixel also has the columns of the one before
  const Axis &height = p.axes[1], &width = p.axes[2];
  const int32_t lane = static_cast<int32_t>(threadIdx.x) / s.threads;
  const int32_t thread = static_cast<int32_t>(threadIdx.x) - lane * s.threads;
  const int32_t window = s.threads * kCount;
  const StripMemory<C> shared(memory, window, s.lanes);
  const int64_t planes = p.planes();
  const int64_t output_plane = p.output_plane(), input_plane = p.input_plane();
  const int64_t output_slice = static_cast<int64_t>(height.output) * width.output;
  for (int64_t job = blockIdx.x; job < s.jobs; job += gridDim.x) {
    const Division segment(job, s.segments), strip(segment.quotient, s.strips);
    const Division slice(strip.quotient, p.axes[0].input);
    const int32_t first = static_cast<int32_t>(segment.remainder) * s.pixels;
    const int32_t count = static_cast<int32_t>(at_most(s.pixels, width.input - first));
    const int32_t top = static_cast<int32_t>(strip.remainder) * s.rows;
    const int32_t bottom = static_cast<int32_t>(at_most(static_cast<int64_t>(top) + s.rows, height.input));
    const int32_t begin = first_at<C, kLinear>(width, first - kNext) / kCount * kCount;
    const int32_t column = begin + thread * kCount;
    __syncthreads();  // the job before may still be read
    for (int32_t i = threadIdx.x; i < count + 1 + kNext; i += blockDim.x) {
      shared.start[i] = first_at<C, kLinear>(width, first - kNext + i) - begin;
    }
    for (int32_t i = threadIdx.x; kLinear && i < window && begin + i < width.output; i += blockDim.x) {
      const Tap<C> tap = tap_of<C, kLinear>(width, begin + i);
      shared.low[i] = tap.low, shared.high[i] = tap.high;
    }
    Reach z{0, 0, 1};
    if constexpr (kVolume) {
      z = reach_of<C, kLinear>(p.axes[0], static_cast<int32_t>(slice.remainder));
      for (int32_t o = z.begin + static_cast<int32_t>(threadIdx.x); o < z.end; o += blockDim.x) {
        const Tap<C> tap = tap_of<C, kLinear>(p.axes[0], o);
        shared.depth[o - z.begin] = o < z.middle ? tap.high : tap.low;
      }
    } else {
      z.begin = static_cast<int32_t>(slice.remainder);
    }
    __syncthreads();
    const int32_t from = first_at<C, kLinear>(height, top - kNext), until = first_at<C, kLinear>(height, bottom);
    int32_t turn = 0;
    for (int32_t repeat = 0; repeat < s.repeats; ++repeat) {
      const int64_t plane = (slice.quotient * s.repeats + repeat) * s.lanes + lane;
      const bool is_mine = lane < s.lanes && plane < planes;
      const bool reads = is_mine && column < width.output;
      const T* const source = b.grad_output + plane * output_plane + z.begin * output_slice + column;
      T* target = b.grad_input + plane * input_plane +
                  (slice.remainder * height.input + top) * static_cast<int64_t>(width.input) + first;
      // An output row's columns, summed along the depth.
      const auto load = [&](int32_t o, C(&sums)[kCount]) {
        if (!reads || o >= until) return;
        const T* row = source + static_cast<int64_t>(o) * width.output;
        if constexpr (kVolume) {
#pragma unroll
          for (int k = 0; k < kCount; ++k) sums[k] = C(0);
#pragma unroll 4
          for (int32_t d = 0; d < z.end - z.begin; ++d) {
            const C weight = shared.depth[d];
            const Vector<T, kCount> found = *reinterpret_cast<const Vector<T, kCount>*>(row + d * output_slice);
#pragma unroll
            for (int k = 0; k < kCount; ++k) {
              if (weight != C(0)) sums[k] = baracuda::fma(weight, widen(found.elements[k]), sums[k]);
            }
          }
        } else {
          const Vector<T, kCount> found = *reinterpret_cast<const Vector<T, kCount>*>(row);
#pragma unroll
          for (int k = 0; k < kCount; ++k) sums[k] = widen(found.elements[k]);
        }
      };
      C above[kCount], below[kCount], next[kCount];
#pragma unroll
      for (int k = 0; k < kCount; ++k) above[k] = C(0), below[k] = C(0), next[k] = C(0);
      int32_t o = from;
      load(o, next);
      Tap<C> y = tap_of<C, kLinear>(height, o < until ? o : until - 1);
      for (int32_t pixel = top - kNext; pixel < bottom; ++pixel) {
        while (o < until && y.index == pixel) {
#pragma unroll
          for (int k = 0; k < kCount; ++k) {
            above[k] = baracuda::fma(y.low, next[k], above[k]);
            if (kLinear && y.high != C(0)) below[k] = baracuda::fma(y.high, next[k], below[k]);
          }
          ++o;
          load(o, next);
          if (o < until) y = tap_of<C, kLinear>(height, o);
        }
        if (pixel >= top) {
          C* const row = shared.rows + (turn * s.lanes + lane) * window;
          if (lane < s.lanes) lay_out(above, row + thread * kCount);
          __syncthreads();
          for (int32_t i = is_mine ? thread : count; i < count; i += s.threads) {
            C sum = C(0);
            int32_t j = shared.start[i];
            if constexpr (kLinear) {
              const int32_t middle = shared.start[i + 1];
              for (; j < middle; ++j) {
                const C weight = shared.high[j];
                if (weight != C(0)) sum = baracuda::fma(weight, row[j], sum);
              }
            }
            const int32_t end = shared.start[i + 1 + kNext];
            for (; j < end; ++j) sum = kLinear ? baracuda::fma(shared.low[j], row[j], sum) : sum + row[j];
            // Plus 0, as where sums are cut: a sum that underflows is 0, not -0.
            target[i] = narrow<T>(C(0) + sum);
          }
          target += width.input;
          turn ^= 1;
        }
#pragma unroll
        for (int k = 0; k < kCount; ++k) above[k] = below[k], below[k] = C(0);
      }
    }
  }
}

template <typename T, int kCount>
Status enqueue_strips(const Problem& p, const BackwardBuffers<T>& b, const Strips& s, Stream stream) {
  const bool is_volume = p.depth().rule != Rule::kSame;
  const auto kernel = p.is_linear
                          ? (is_volume ? sum_strips<T, kCount, true, true> : sum_strips<T, kCount, true, false>)
                          : (is_volume ? sum_strips<T, kCount, false, true> : sum_strips<T, kCount, false, false>);
  return launch_kernel("interpolate_backward kernel", kernel, blocks_for(s.jobs, 1), s.block(), s.shared_bytes, stream,
                       p, b, s);
}

template <typename T>
Strips strips_of(const Problem& p, int32_t vector) {
  return p.is_linear ? strips_of<Compute<T>, true>(p, vector) : strips_of<Compute<T>, false>(p, vector);
}

}  // namespace
}  // namespace baracuda::interpolate
