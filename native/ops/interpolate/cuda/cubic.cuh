// SPDX-License-Identifier: Apache-2.0
// The cubic mode on CUDA. Forward: a thread has a vector of columns of the output and walks down a strip of its rows,
// with four input rows at its columns. Gradient: threads side by side have a window of the output's columns and walk
// down its rows with four running sums, of the input rows that a row is made of, as strips.cuh does with two.
#pragma once

#include "core/cuda_division.cuh"
#include "core/cuda_launch.cuh"
#include "core/cuda_shared.cuh"
#include "ops/interpolate/cubic.h"
#include "ops/interpolate/cuda/columns.cuh"
#include "ops/interpolate/cuda/pixels.cuh"
#include "ops/interpolate/cuda/strips.cuh"
#include "ops/interpolate/launch.h"

namespace baracuda::interpolate {
namespace {

// ---- forward

// Columns of a thread: their weights and four rows of them stay in registers.
template <typename T>
constexpr int kCubicColumns = sizeof(T) == 8 ? 2 : 4;

template <typename T, int kCount>
__global__ void __launch_bounds__(kColumnThreads)
    interpolate_cubic_columns(const __grid_constant__ Problem p, const __grid_constant__ ForwardBuffers<T> b,
                              const __grid_constant__ Columns columns) {
  using C = Compute<T>;
  const Axis &height = p.axes[1], &width = p.axes[2];
  const int32_t taps = width.input < kCubicTaps ? width.input : kCubicTaps;
  for (int64_t thread = grid_thread(); thread < columns.threads; thread += grid_threads()) {
    const Strip at = strip_of(thread, p, columns, kCount);
    CubicTap<C> x[kCount];
#pragma unroll
    for (int k = 0; k < kCount; ++k) x[k] = cubic_tap<C>(width, at.column + k);
    const T* const first_row = b.input + at.plane * p.input_plane();
    C held[kCubicTaps][kCount];
    int32_t first = -kCubicTaps, until = 0;  // the rows [first, until) are held
    T* out = b.output + (at.plane * height.output + at.first) * static_cast<int64_t>(width.output) + at.column;
    for (int32_t o = at.first; o < at.end; ++o, out += width.output) {
      const CubicTap<C> y = cubic_tap<C>(height, o);
      if (y.first != first) {
        if (y.first > first + kCubicTaps || first < 0) {
          first = until = y.first;
        }
        for (; first < y.first; ++first) {
#pragma unroll
          for (int t = 0; t + 1 < kCubicTaps; ++t) {
#pragma unroll
            for (int k = 0; k < kCount; ++k) held[t][k] = held[t + 1][k];
          }
        }
        if (until < first) until = first;
#pragma unroll
        for (int t = 0; t < kCubicTaps; ++t) {
          if (first + t < until || first + t >= height.input) continue;
          const T* const row = first_row + static_cast<int64_t>(first + t) * width.input;
#pragma unroll
          for (int k = 0; k < kCount; ++k) {
            C sum = C(0);
#pragma unroll
            for (int i = 0; i < kCubicTaps; ++i) {
              if (i >= taps) continue;
              const C value = widen(row[x[k].first + i]);
              if (x[k].weights[i] != C(0)) sum = baracuda::fma(x[k].weights[i], value, sum);
            }
            held[t][k] = sum;
          }
        }
        until = first + kCubicTaps;
      }
      Vector<T, kCount> result;
#pragma unroll
      for (int k = 0; k < kCount; ++k) {
        C sum = C(0);
#pragma unroll
        for (int t = 0; t < kCubicTaps; ++t) {
          if (y.weights[t] != C(0)) sum = baracuda::fma(y.weights[t], held[t][k], sum);
        }
        result.elements[k] = narrow<T>(sum);
      }
      *reinterpret_cast<Vector<T, kCount>*>(out) = result;
    }
  }
}

// ---- gradient, in strips

// Whether no sum along the axis is cut.
template <typename C>
bool is_cubic_uncut(const Axis& axis) {
  if (axis.output <= kCut) return true;
  // As is_uncut(): a pixel in the middle has four steps of the inverse; those at either end are counted.
  if (axis.output > (1 << 22) || 4.0 * axis.inverse + 10.0 > kCut) return false;
  for (int32_t i = 0; i < 2 * kCubicTaps && i < axis.input; ++i) {
    const CubicReach first = cubic_reach<C>(axis, i), last = cubic_reach<C>(axis, axis.input - 1 - i);
    if (first.end - first.begin > kCut || last.end - last.begin > kCut) return false;
  }
  return true;
}

template <typename C>
int32_t cubic_window_of(const Axis& width, int32_t pixels, int32_t vector) {
  int32_t most = 0;
  for (int64_t first = 0; first < width.input; first += pixels) {
    const int32_t last = static_cast<int32_t>(at_most(first + pixels, width.input) - 1);
    const int32_t begin = cubic_reach<C>(width, static_cast<int32_t>(first)).begin / vector;
    const int32_t end = static_cast<int32_t>(ceil_div(cubic_reach<C>(width, last).end, vector));
    most = end - begin > most ? end - begin : most;
  }
  return most;
}

// Columns of a thread: four running sums of each stay in registers.
template <typename T>
constexpr int kCubicStripColumns = sizeof(T) == 8 ? 2 : 4;
constexpr int64_t kWantedCubicStrips = 2048;
// Output rows of which a thread has the next ones on their way, so that loads overlap.
constexpr int kCubicAhead = 3;
// Output rows whose weights a block has in shared memory at a time.
constexpr int32_t kCubicRowTaps = 64;
// Where an input pixel has no more output columns, their weights are in registers of the thread that sums them.
constexpr int kShortTaps = 9;

// Whether no input pixel has a weight other than 0 at more than kShortTaps output pixels, and the input is not the
// finer. Pixel i is one of those at o if o's place lies in [i - 2, i + 2): so there are at most (4 + 2 e) / step,
// rounded up, where e is what a place is rounded by, which is less than 2^-8 for these extents. Pixels at the ends have
// what lies beyond them too, which is less than a pixel if the scale does not say less than the extents.
inline bool is_short(const Axis& axis) {
  return axis.input <= (1 << 16) && axis.output >= axis.input && axis.step * kShortTaps >= 4.01 &&
         axis.step * axis.output <= axis.input + 0.5;
}

// As strips_of(), with what four taps need in shared memory; of so many pixels a thread at most.
template <typename C>
Strips cubic_strips_of(const Problem& p, int32_t vector, int32_t most_pixels) {
  Strips s{};
  const Axis& width = p.width();
  if (!is_cubic_uncut<C>(p.height()) || !is_cubic_uncut<C>(width)) return s;
  int64_t segments = ceil_div(ceil_div(width.output, vector), kWindowThreads);
  segments = at_least(segments, ceil_div(width.input, most_pixels * kWindowThreads));
  int32_t threads = 0;
  for (;; segments += segments / 8 + 1) {
    s.pixels = static_cast<int32_t>(ceil_div(width.input, segments));
    threads = cubic_window_of<C>(width, s.pixels, vector);
    if (threads <= kWindowThreads || s.pixels == 1) break;
  }
  if (threads > kWindowThreads) return s;
  threads = static_cast<int32_t>(at_least(threads, ceil_div(s.pixels, most_pixels)));
  // A window is no narrower than a pixel's columns.
  s.threads = static_cast<int32_t>(at_least(threads, ceil_div(kShortTaps, vector)));
  s.segments = static_cast<int32_t>(ceil_div(width.input, s.pixels));
  s.lanes = static_cast<int32_t>(at_least(kStripThreads / s.threads, 1));
  s.lanes = static_cast<int32_t>(at_most(s.lanes, p.planes()));
  s.repeats = 1;
  const int64_t above = ceil_div(p.planes(), s.lanes) * s.segments;
  const int32_t height = p.height().input;
  s.rows = 2 * kInputRows;
  while (s.rows > 4 && above * ceil_div(height, s.rows) < kWantedCubicStrips) s.rows /= 2;
  s.strips = static_cast<int32_t>(ceil_div(height, s.rows));
  s.jobs = above * s.strips;
  const int64_t window = static_cast<int64_t>(s.threads) * vector;
  s.shared_bytes = static_cast<size_t>((kCubicTaps + 2 * s.lanes) * window) * sizeof(C) +
                   static_cast<size_t>(s.pixels + kCubicTaps) * sizeof(int32_t);
  return s;
}

// The output columns of a pixel that have a weight, as far as they fit, and their weights.
template <typename C>
struct ShortTaps {
  int32_t first;
  C weights[kShortTaps];

  // `start` is the pixel's, with those of the next four; `all` the weights of the window's columns.
  __device__ __forceinline__ void enter(const int32_t* start, const C* all, int32_t window) {
    int32_t starts[kCubicTaps + 1];
#pragma unroll
    for (int t = 0; t <= kCubicTaps; ++t) starts[t] = start[t];
    // Of column j: its first pixel is three before this one, or two, one or none.
    const auto weight = [&](int32_t j) {
      if (j < starts[0] || j >= starts[kCubicTaps]) return C(0);
      const int32_t t = (j >= starts[1]) + (j >= starts[2]) + (j >= starts[3]);
      return all[(kCubicTaps - 1 - t) * window + j];
    };
    first = starts[0];
    while (first < starts[kCubicTaps] && weight(first) == C(0)) ++first;
    first = first < window - kShortTaps ? first : window - kShortTaps;
#pragma unroll
    for (int k = 0; k < kShortTaps; ++k) weights[k] = weight(first + k);
  }

  // `row` is the window's at the first of these columns. A weight of 0 is no column: with `asks` it is left out, and
  // without, where all are finite, it adds a zero, which can change nothing but the sign of a zero.
  template <bool asks>
  __device__ __forceinline__ C sum(const C* row) const {
    C found = C(0);
#pragma unroll
    for (int k = 0; k < kShortTaps; ++k) {
      const C more = baracuda::fma(weights[k], row[k], found);
      found = !asks || weights[k] != C(0) ? more : found;
    }
    return found;
  }
};

// What an output row is made of; behind the last one no pixel is the first.
template <typename C>
struct RowTap {
  Vector<C, kCubicTaps> weights;
  int32_t first;
};

// With `kShort` the columns' weights are in registers; with `kWhole` rows of the output are vectors.
template <typename T, bool kShort, bool kWhole>
__global__ void __launch_bounds__(kWindowThreads, 3)
    sum_cubic_strips(const __grid_constant__ Problem p, const __grid_constant__ BackwardBuffers<T> b,
                     const __grid_constant__ Strips s) {
  using C = Compute<T>;
  constexpr int kCount = kCubicStripColumns<T>, kEach = kShort ? kCount / 2 : 1;
  using Piece = Vector<T, kCount>;
  __shared__ RowTap<C> row_taps[kCubicRowTaps];
  unsigned char* const memory = dynamic_shared<unsigned char>();
  const Axis &height = p.axes[1], &width = p.axes[2];
  const int32_t lane = static_cast<int32_t>(threadIdx.x) / s.threads;
  const int32_t thread = static_cast<int32_t>(threadIdx.x) - lane * s.threads;
  const int32_t window = s.threads * kCount;
  // [2][lanes][window]: sums of an input row, while the ones before are still read.
  C* const rows = reinterpret_cast<C*>(memory);
  // [4][window]: weights of the columns, the one of their first pixel first.
  C* const weights = rows + 2 * s.lanes * window;
  // [pixels + 4]: where the output columns begin whose first pixel is this or a later one, from three before on.
  int32_t* const start = reinterpret_cast<int32_t*>(weights + kCubicTaps * window);
  for (int64_t job = blockIdx.x; job < s.jobs; job += gridDim.x) {
    const Division segment(job, s.segments), strip(segment.quotient, s.strips);
    const int32_t first = static_cast<int32_t>(segment.remainder) * s.pixels;
    const int32_t count = static_cast<int32_t>(at_most(s.pixels, width.input - first));
    const int32_t top = static_cast<int32_t>(strip.remainder) * s.rows;
    const int32_t bottom = static_cast<int32_t>(at_most(static_cast<int64_t>(top) + s.rows, height.input));
    const int32_t begin = cubic_reach<C>(width, first).begin / kCount * kCount;
    const int32_t column = begin + thread * kCount;
    const int32_t from = cubic_reach<C>(height, top).begin, until = cubic_reach<C>(height, bottom - 1).end;
    // The weights of output rows from `known` on.
    int32_t known = from;
    const auto enter_rows = [&] {
      for (int32_t i = threadIdx.x; i < kCubicRowTaps; i += blockDim.x) {
        RowTap<C> found{};
        found.first = INT32_MAX;
        if (known + i < until) {
          const CubicTap<C> tap = cubic_tap<C>(height, known + i);
          found.first = tap.first;
#pragma unroll
          for (int t = 0; t < kCubicTaps; ++t) found.weights.elements[t] = tap.weights[t];
        }
        row_taps[i] = found;
      }
    };
    __syncthreads();  // the job before may still be read
    enter_rows();
    for (int32_t i = threadIdx.x; i < count + kCubicTaps; i += blockDim.x) {
      start[i] = cubic_first_at<C>(width, first - kCubicTaps + 1 + i) - begin;
    }
    for (int32_t i = threadIdx.x; i < window && begin + i < width.output; i += blockDim.x) {
      const CubicTap<C> tap = cubic_tap<C>(width, begin + i);
#pragma unroll
      for (int t = 0; t < kCubicTaps; ++t) weights[t * window + i] = tap.weights[t];
    }
    const int64_t plane = strip.quotient * s.lanes + lane;
    const bool is_mine = lane < s.lanes && plane < p.planes();
    const bool reads = is_mine && column < width.output && from < until;
    // Threads without columns, and rows behind the last one, read what is there, and nobody has it.
    const T* source = b.grad_output;
    if (reads) source += plane * p.output_plane() + static_cast<int64_t>(from) * width.output + column;
    T* target = b.grad_input + plane * p.input_plane() + static_cast<int64_t>(top) * width.input + first;
    // The next output rows; they are widened when their turn comes, since that is where a thread waits for them.
    Piece ahead[kCubicAhead];
    int32_t asked = from;
    const int32_t row_stride = reads ? width.output : 0;
    // Instead of columns beyond a row's last one a thread reads its first one again.
    int32_t places[kCount];
#pragma unroll
    for (int k = 0; k < kCount; ++k) places[k] = reads && column + k < width.output ? k : 0;
    const auto ask = [&](Piece& piece) {
      if constexpr (kWhole) {
        piece = *reinterpret_cast<const Piece*>(source);
      } else {
#pragma unroll
        for (int k = 0; k < kCount; ++k) piece.elements[k] = source[places[k]];
      }
      if (++asked < until) source += row_stride;
    };
    // Of the input rows from `pixel` on.
    C sums[kCubicTaps][kCount];
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
#pragma unroll
      for (int t = 0; t < kCubicTaps; ++t) sums[t][k] = C(0);
    }
#pragma unroll
    for (int a = 0; a < kCubicAhead; ++a) ask(ahead[a]);
    __syncthreads();
    ShortTaps<C> taps[kEach];
    bool writes[kEach];
    if constexpr (kShort) {
#pragma unroll
      for (int e = 0; e < kEach; ++e) {
        const int32_t i = thread + e * s.threads;
        writes[e] = is_mine && i < count;
        taps[e].enter(start + (i < count ? i : 0), weights, window);
      }
    }
    // The output row whose turn is next.
    const RowTap<C>* tap = row_taps;
    RowTap<C> y = *tap;
    // Of the two rows, this one's place and the distance of the other.
    C* row = rows + lane * window;
    int32_t other = s.lanes * window;
    for (int32_t pixel = top - kCubicTaps + 1; pixel < bottom; ++pixel) {
      while (y.first == pixel) {
        C values[kCount];
#pragma unroll
        for (int k = 0; k < kCount; ++k) values[k] = widen(ahead[0].elements[k]);
#pragma unroll
        for (int a = 0; a + 1 < kCubicAhead; ++a) ahead[a] = ahead[a + 1];
        ask(ahead[kCubicAhead - 1]);
#pragma unroll
        for (int t = 0; t < kCubicTaps; ++t) {
          const C weight = y.weights.elements[t];
          if (weight == C(0)) continue;
#pragma unroll
          for (int k = 0; k < kCount; ++k) sums[t][k] = baracuda::fma(weight, values[k], sums[t][k]);
        }
        if (++tap == row_taps + kCubicRowTaps) {
          __syncthreads();  // the last of them may still be read
          known += kCubicRowTaps;
          enter_rows();
          __syncthreads();
          tap = row_taps;
        }
        y = *tap;
      }
      if (pixel >= top) {
        // Plus 0, as where sums are cut: a sum that underflows is 0, not -0.
#pragma unroll
        for (int k = 0; k < kCount; ++k) sums[0][k] = C(0) + sums[0][k];
        if (lane < s.lanes) lay_out(sums[0], row + thread * kCount);
        if constexpr (kShort) {
          C zero = C(0);
#pragma unroll
          for (int k = 0; k < kCount; ++k) zero = baracuda::fma(C(0), sums[0][k], zero);
          const bool asks = __syncthreads_or(zero != C(0));
#pragma unroll
          for (int e = 0; e < kEach; ++e) {
            if (!writes[e]) continue;
            const C* const at = row + taps[e].first;
            const C sum = asks ? taps[e].template sum<true>(at) : taps[e].template sum<false>(at);
            target[thread + e * s.threads] = narrow<T>(C(0) + sum);
          }
        } else {
          __syncthreads();
          for (int32_t i = is_mine ? thread : count; i < count; i += s.threads) {
            C sum = C(0);
            // Columns whose first pixel is three before this one, then two, one and none.
#pragma unroll
            for (int t = 0; t < kCubicTaps; ++t) {
              const C* const weight = weights + (kCubicTaps - 1 - t) * window;
              const int32_t end = start[i + t + 1];
              for (int32_t j = start[i + t]; j < end; ++j) {
                if (weight[j] != C(0)) sum = baracuda::fma(weight[j], row[j], sum);
              }
            }
            target[i] = narrow<T>(C(0) + sum);
          }
        }
        target += width.input;
        row += other;
        other = -other;
      }
#pragma unroll
      for (int k = 0; k < kCount; ++k) {
#pragma unroll
        for (int t = 0; t + 1 < kCubicTaps; ++t) sums[t][k] = sums[t + 1][k];
        sums[kCubicTaps - 1][k] = C(0);
      }
    }
  }
}

// ---- gradient, an input pixel a thread

template <typename T>
__global__ void __launch_bounds__(kPixelThreads)
    sum_cubic_pixels(const __grid_constant__ Problem p, const __grid_constant__ BackwardBuffers<T> b) {
  using C = Compute<T>;
  const Axis &height = p.axes[1], &width = p.axes[2];
  for (int64_t pixel = grid_thread(); pixel < p.input_numel; pixel += grid_threads()) {
    const PixelPlace at = place_of(pixel, height.input, width.input, 1);
    const CubicReach y = cubic_reach<C>(height, at.y), x = cubic_reach<C>(width, at.x);
    const T* const plane = b.grad_output + at.plane * p.output_plane();
    CutSum<C> of_width;
    for (int32_t ox = x.begin; ox < x.end; ++ox) {
      CutSum<C> of_height;
      for (int32_t oy = y.begin; oy < y.end; ++oy) {
        const C weight = cubic_weight(cubic_tap<C>(height, oy), at.y);
        of_height.add(weight, widen(plane[static_cast<int64_t>(oy) * width.output + ox]), oy - y.begin);
      }
      of_width.add(cubic_weight(cubic_tap<C>(width, ox), at.x), of_height.sum(), ox - x.begin);
    }
    b.grad_input[pixel] = narrow<T>(of_width.sum());
  }
}

// ---- launches

template <typename T, int kCount>
Status enqueue_cubic_columns(const Problem& p, const ForwardBuffers<T>& b, Stream stream) {
  const Columns columns = columns_of(p, kCount);
  return launch_kernel("interpolate kernel", interpolate_cubic_columns<T, kCount>,
                       blocks_for(columns.threads, kColumnThreads), kColumnThreads, 0, stream, p, b, columns);
}

// The cut of a call that can be taken so.
template <typename T, bool kShort>
Strips cubic_strips_of(const Problem& p) {
  constexpr int kCount = kCubicStripColumns<T>;
  if (kShort && !is_short(p.width())) return {};
  return cubic_strips_of<Compute<T>>(p, kCount, kShort ? kCount / 2 : kPixelsPerThread);
}

template <typename T, bool kShort>
Status enqueue_cubic_strips(const Problem& p, const BackwardBuffers<T>& b, Stream stream) {
  constexpr int kCount = kCubicStripColumns<T>;
  const Strips s = cubic_strips_of<T, kShort>(p);
  const bool is_whole =
      p.width().output % kCount == 0 && reinterpret_cast<uintptr_t>(b.grad_output) % (kCount * sizeof(T)) == 0;
  const auto kernel = is_whole ? sum_cubic_strips<T, kShort, true> : sum_cubic_strips<T, kShort, false>;
  return launch_kernel("interpolate_backward kernel", kernel, blocks_for(s.jobs, 1), s.block(), s.shared_bytes, stream,
                       p, b, s);
}

template <typename T>
Status enqueue_cubic_pixels(const Problem& p, const BackwardBuffers<T>& b, Stream stream) {
  return launch_kernel("interpolate_backward kernel", sum_cubic_pixels<T>, blocks_for(p.input_numel, kPixelThreads),
                       kPixelThreads, 0, stream, p, b);
}

}  // namespace
}  // namespace baracuda::interpolate
