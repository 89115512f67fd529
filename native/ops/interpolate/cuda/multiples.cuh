// SPDX-License-Identifier: Apache-2.0
// The gradient on CUDA where the output is two or four times as wide as the input. A thread has a vector of the
// output's columns and those beside it that its input pixels also have, and walks down the rows with two running sums:
// of the input row above and of the one below. Where it passes an input row it sums the columns in registers, with
// weights that are the same for every pixel but those at the edges; so nothing is exchanged and no thread waits for
// another.
#pragma once

#include "core/cuda_division.cuh"
#include "core/cuda_launch.cuh"
#include "ops/interpolate/cuda/columns.cuh"
#include "ops/interpolate/cuda/strips.cuh"
#include "ops/interpolate/launch.h"
#include "ops/interpolate/math.h"

namespace baracuda::interpolate {
namespace {

constexpr int kMultipleThreads = 128;
// Input rows of a strip, at most: each strip reads the output rows between it and its neighbours once more.
constexpr int32_t kMultipleRows = 16;
constexpr int64_t kWantedMultipleThreads = int64_t{1} << 18;
// Positions are whole multiples of a step that is a power of two: exact below this extent, in f32 too.
constexpr int32_t kExactPositions = 1 << 22;

// How a call is cut: threads of a vector of columns each, over strips of `rows` input rows. Where a plane is one row, a
// thread has `repeats` planes, so that what it prepares serves all.
struct Multiples {
  int32_t vectors, strips, rows, repeats;
  int64_t groups, threads;
};

// The output's columns of a thread: a vector, and at least those of an input pixel.
template <typename T, int kFactor>
constexpr int kMultipleColumns = kVector<T> > kFactor ? kVector<T> : kFactor;

template <typename C, bool kLinear>
bool is_multiple(const Problem& p, int32_t factor) {
  const Axis& width = p.width();
  if (width.rule == Rule::kSame || width.rule == Rule::kCorners) return false;
  if (width.output > kExactPositions || static_cast<int64_t>(width.input) * factor != width.output) return false;
  if (width.step * factor != 1.0) return false;
  return is_uncut<C, kLinear>(p.depth()) && is_uncut<C, kLinear>(p.height());
}

template <typename T>
bool is_multiple(const Problem& p, int32_t factor) {
  return p.is_linear ? is_multiple<Compute<T>, true>(p, factor) : is_multiple<Compute<T>, false>(p, factor);
}

inline Multiples multiples_of(const Problem& p, int vector) {
  Multiples m;
  const int32_t height = p.height().input;
  m.vectors = p.width().output / vector;
  const int64_t above = p.planes() * p.depth().input * m.vectors;
  m.repeats = p.output_rows() == 1 && above > kPlanesOfRows * kWantedMultipleThreads ? kPlanesOfRows : 1;
  m.groups = ceil_div(p.planes(), m.repeats);
  m.rows = kMultipleRows;
  while (m.rows > 2 && above * ceil_div(height, m.rows) < kWantedMultipleThreads) m.rows /= 2;
  m.strips = static_cast<int32_t>(ceil_div(height, m.rows));
  m.threads = m.groups * p.depth().input * m.strips * m.vectors;
  return m;
}

// Columns [column - kHalo, column + kCount + kHalo) of an output row as they lie in memory: a thread waits for them
// where they are widened, and not where they are asked for.
template <typename T, int kCount, int kHalo>
struct WideVector {
  using C = Compute<T>;
  static constexpr int kAll = kCount + 2 * kHalo;
  static constexpr int kSide = kHalo > 0 ? kHalo : 1;

  Vector<T, kCount> own;
  Vector<T, kSide> left, right;

  // Those beyond the row's ends are 0.
  __device__ __forceinline__ void read(const T* at, bool is_first, bool is_last) {
    own = *reinterpret_cast<const Vector<T, kCount>*>(at);
    if constexpr (kHalo > 0) {
#pragma unroll
      for (int k = 0; k < kHalo; ++k) left.elements[k] = right.elements[k] = narrow<T>(C(0));
      if (!is_first) left = *reinterpret_cast<const Vector<T, kHalo>*>(at - kHalo);
      if (!is_last) right = *reinterpret_cast<const Vector<T, kHalo>*>(at + kCount);
    }
  }

  __device__ __forceinline__ C value(int k) const {
    if (k < kHalo) return widen(left.elements[k]);
    return k < kHalo + kCount ? widen(own.elements[k - kHalo]) : widen(right.elements[k - kHalo - kCount]);
  }
};

// Output rows, or slices of one, that a thread has on their way.
constexpr int kRowsAhead = 3;
constexpr int kSlicesAhead = 4;

// The weight of output slice d of a pixel's reach.
template <typename C, bool kLinear>
__device__ __forceinline__ C depth_weight(const Axis& depth, const Reach& z, int32_t d) {
  const Tap<C> tap = tap_of<C, kLinear>(depth, d);
  return d < z.middle ? tap.high : tap.low;
}

template <typename T, int kFactor, bool kLinear, bool kVolume>
__global__ void __launch_bounds__(kMultipleThreads)
    sum_multiples(const __grid_constant__ Problem p, const __grid_constant__ BackwardBuffers<T> b,
                  const __grid_constant__ Multiples m) {
  using C = Compute<T>;
  constexpr int kCount = kMultipleColumns<T, kFactor>, kPixels = kCount / kFactor, kHalo = kLinear ? kFactor / 2 : 0;
  using Wide = WideVector<T, kCount, kHalo>;
  constexpr int kAll = Wide::kAll;
  constexpr int kAhead = kVolume ? kSlicesAhead : kRowsAhead;
  constexpr int32_t kNext = kLinear ? 1 : 0;  // whether a pixel also has the rows of the one before
  const Axis &depth = p.axes[0], &height = p.axes[1], &width = p.axes[2];
  for (int64_t thread = grid_thread(); thread < m.threads; thread += grid_threads()) {
    const Division row(thread, m.vectors), strip(row.quotient, m.strips), slice(strip.quotient, depth.input);
    const int32_t column = static_cast<int32_t>(row.remainder) * kCount;
    const bool is_first = column == 0, is_last = column + kCount == width.output;
    const int32_t top = static_cast<int32_t>(strip.remainder) * m.rows;
    const int32_t bottom = static_cast<int32_t>(at_most(static_cast<int64_t>(top) + m.rows, height.input));
    const int32_t from = first_at<C, kLinear>(height, top - kNext), until = first_at<C, kLinear>(height, bottom);
    const Reach z = reach_of<C, kLinear>(depth, static_cast<int32_t>(slice.remainder));
    const int64_t plane = slice.quotient * m.repeats;
    const T* source = b.grad_output + plane * p.output_plane() + column +
                      (static_cast<int64_t>(z.begin) * height.output + from) * width.output;
    T* first = b.grad_input + plane * p.input_plane() + column / kFactor +
               (slice.remainder * height.input + top) * static_cast<int64_t>(width.input);
    const int32_t repeats = static_cast<int32_t>(at_most(m.repeats, p.planes() - plane));
    const int64_t output_slice = static_cast<int64_t>(height.output) * width.output;
    // Of the first slices; most pixels have no more.
    C weights[kVolume ? kAhead : 1];
#pragma unroll
    for (int d = 0; kVolume && d < kAhead; ++d) {
      weights[d] = z.begin + d < z.end ? depth_weight<C, kLinear>(depth, z, z.begin + d) : C(0);
    }
    for (int32_t repeat = 0; repeat < repeats; ++repeat, source += p.output_plane(), first += p.input_plane()) {
      const T* at = source;
      T* target = first;
      int32_t asked = from;
      Wide ahead[kAhead];
      // Asks for the next output row: in an image behind those that are on their way.
      const auto ask = [&] {
        if (asked < until) {
          if constexpr (kVolume) {
#pragma unroll
            for (int d = 0; d < kAhead; ++d) {
              if (weights[d] != C(0)) ahead[d].read(at + d * output_slice, is_first, is_last);
            }
          } else {
            ahead[kAhead - 1].read(at, is_first, is_last);
          }
          at += width.output;
        }
        ++asked;
      };
      // The columns of the output row at hand, summed along the depth.
      const auto take = [&](C(&sums)[kAll]) {
        if constexpr (kVolume) {
#pragma unroll
          for (int k = 0; k < kAll; ++k) sums[k] = C(0);
#pragma unroll
          for (int d = 0; d < kAhead; ++d) {
            if (weights[d] == C(0)) continue;
#pragma unroll
            for (int k = 0; k < kAll; ++k) sums[k] = baracuda::fma(weights[d], ahead[d].value(k), sums[k]);
          }
          for (int32_t d = z.begin + kAhead; d < z.end; ++d) {
            const C weight = depth_weight<C, kLinear>(depth, z, d);
            if (weight == C(0)) continue;
            Wide found;
            found.read(at + (d - z.begin) * output_slice - width.output, is_first, is_last);
#pragma unroll
            for (int k = 0; k < kAll; ++k) sums[k] = baracuda::fma(weight, found.value(k), sums[k]);
          }
        } else {
#pragma unroll
          for (int k = 0; k < kAll; ++k) sums[k] = ahead[0].value(k);
#pragma unroll
          for (int a = 0; a + 1 < kAhead; ++a) ahead[a] = ahead[a + 1];
        }
      };
      C above[kAll], below[kAll];
#pragma unroll
      for (int k = 0; k < kAll; ++k) above[k] = C(0), below[k] = C(0);
      int32_t o = from;
      ask();
#pragma unroll
      for (int a = 1; !kVolume && a < kAhead; ++a) {
#pragma unroll
        for (int i = 0; i + 1 < kAhead; ++i) ahead[i] = ahead[i + 1];
        ask();
      }
      Tap<C> y = tap_of<C, kLinear>(height, o < until ? o : until - 1);
      for (int32_t pixel = top - kNext; pixel < bottom; ++pixel) {
        while (o < until && y.index == pixel) {
          C next[kAll];
          take(next);
          ask();
#pragma unroll
          for (int k = 0; k < kAll; ++k) {
            above[k] = baracuda::fma(y.low, next[k], above[k]);
            if (kLinear && y.high != C(0)) below[k] = baracuda::fma(y.high, next[k], below[k]);
          }
          ++o;
          if (o < until) y = tap_of<C, kLinear>(height, o);
        }
        if (pixel >= top) {
          Vector<T, kPixels> result;
#pragma unroll
          for (int i = 0; i < kPixels; ++i) {
            C sum = C(0);
            // Pixel i's columns lie from its half of the vector's start on; without a halo they are its own alone.
#pragma unroll
            for (int j = 0; j < (kLinear ? 2 * kFactor : kFactor); ++j) {
              const C value = above[i * kFactor + j];
              if constexpr (kLinear) {
                const bool rises = j < kFactor;
                const C place = (C(j % kFactor) + C(0.5)) / C(kFactor);
                C weight = rises ? place : C(1) - place;
                // Columns between an edge and the middle of its pixel have that pixel alone.
                if (i == 0 && rises && 2 * j >= kFactor && is_first) weight = C(1);
                if (i == kPixels - 1 && !rises && 2 * (j - kFactor) < kFactor && is_last) weight = C(1);
                sum = baracuda::fma(weight, value, sum);
              } else {
                sum += value;
              }
            }
            // Plus 0, as where sums are cut: a sum that underflows is 0, not -0.
            result.elements[i] = narrow<T>(C(0) + sum);
          }
          *reinterpret_cast<Vector<T, kPixels>*>(target) = result;
          target += width.input;
        }
#pragma unroll
        for (int k = 0; k < kAll; ++k) above[k] = below[k], below[k] = C(0);
      }
    }
  }
}

template <typename T, int kFactor>
Status enqueue_multiples(const Problem& p, const BackwardBuffers<T>& b, Stream stream) {
  const bool is_volume = p.depth().rule != Rule::kSame;
  const auto kernel =
      p.is_linear ? (is_volume ? sum_multiples<T, kFactor, true, true> : sum_multiples<T, kFactor, true, false>)
                  : (is_volume ? sum_multiples<T, kFactor, false, true> : sum_multiples<T, kFactor, false, false>);
  const Multiples m = multiples_of(p, kMultipleColumns<T, kFactor>);
  return launch_kernel("interpolate_backward kernel", kernel, blocks_for(m.threads, kMultipleThreads), kMultipleThreads,
                       0, stream, p, b, m);
}

}  // namespace
}  // namespace baracuda::interpolate
