// SPDX-License-Identifier: Apache-2.0
// Maximum pooling on the CPU. Threads own what they write. Compiled once per instruction set.
//
//   forward path   calls               what a task is
//   taps           fixed windows       some rows of windows: one place of all windows of a row after the other
//   windows        all                 some rows of windows, one window after the other
//
//   backward path  calls               what a task is
//   zeros          without windows     some elements
//   planes         all                 a plane, to which its windows are added in their order
#include <type_traits>

#include "core/cpu_convert.h"
#include "core/cpu_launch.h"
#include "core/cpu_parallel.h"
#include "core/cpu_zeros.h"
#include "core/paths.h"
#include "core/workspace.h"
#include "ops/max_pool/launch.h"
#include "ops/max_pool/math.h"

namespace baracuda::max_pool {
namespace {

// Windows of a row that are kept at a time; the arrays of one thread are then 32 KiB in f64.
constexpr int32_t kWindows = 2048;

// An integer as wide as what is compared, so that both fill vectors alike.
template <typename C>
using Tap = std::conditional_t<sizeof(C) == 8, int64_t, int32_t>;

template <typename C>
struct Arrays {
  C best[kWindows];
  Tap<C> taps[kWindows];  // which of its window's places each holds, in row-major order
};

// widen() for loops over elements, which compilers vectorise.
inline float widen_lane(float x) { return x; }
inline double widen_lane(double x) { return x; }
inline float widen_lane(Half x) { return widen_by_bits(x); }
inline float widen_lane(Bfloat16 x) { return widen(x); }

template <typename T>
class RowMaxima {
 public:
  using C = Compute<T>;

  RowMaxima(const Pooling& p, const ForwardBuffers<T>& b, Arrays<C>& arrays) : p_(p), b_(b), a_(arrays) {}

  // One row of windows by places that all of them have.
  void row_by_taps(int64_t row) const {
    const int64_t slab = row / p_.h.bins;
    const int32_t h = static_cast<int32_t>(row % p_.h.bins), d = static_cast<int32_t>(slab % p_.d.bins);
    const int64_t plane = slab / p_.d.bins;
    const T* const input = b_.input + plane * p_.plane_numel;
    for (int32_t first = 0; first < p_.w.bins; first += kWindows) {
      const int32_t rest = p_.w.bins - first, count = rest < kWindows ? rest : kWindows;
      for (int32_t j = 0; j < count; ++j) a_.taps[j] = -1;
      for (int32_t j = 0; j < count; ++j) a_.best[j] = lowest<C>();
      const Places ds = places_of(p_.d, d), hs = places_of(p_.h, h);
      for (int32_t z = ds.first; z < ds.end; z += ds.step) {
        for (int32_t y = hs.first; y < hs.end; y += hs.step) {
          compare_row(input + (static_cast<int64_t>(z) * p_.h.extent + y) * p_.w.extent, tap_of(d, z, h, y), first,
                      count);
          if (hs.end - y <= hs.step) break;
        }
        if (ds.end - z <= ds.step) break;
      }
      store(input, row * p_.w.bins + first, d, h, first, count);
    }
  }

  // One row of windows, each by itself.
  void row_by_windows(int64_t row) const {
    const int64_t slab = row / p_.h.bins;
    const Places hs = places_of(p_.h, static_cast<int32_t>(row % p_.h.bins));
    const Places ds = places_of(p_.d, static_cast<int32_t>(slab % p_.d.bins));
    const T* const input = b_.input + slab / p_.d.bins * p_.plane_numel;
    for (int32_t w = 0; w < p_.w.bins; ++w) {
      const Places ws = places_of(p_.w, w);
      int64_t kept = kNoElement;
      C best = lowest<C>();
      for (int32_t z = ds.first; z < ds.end; ++z) {
        for (int32_t y = hs.first; y < hs.end; ++y) {
          const int64_t first = (static_cast<int64_t>(z) * p_.h.extent + y) * p_.w.extent;
          if (kept == kNoElement && ws.first < ws.end) kept = first + ws.first;
          for (int32_t x = ws.first; x < ws.end; ++x) {
            const C next = widen(input[first + x]);
            if (!takes_over(next, best)) continue;
            best = next;
            kept = first + x;
          }
        }
      }
      b_.indices[row * p_.w.bins + w] = kept;
      b_.output[row * p_.w.bins + w] = kept == kNoElement ? lowest<T>() : input[kept];
    }
  }

 private:
  // The number of the first place along w of the places of a window that lie at z and y.
  Tap<C> tap_of(int32_t d, int32_t z, int32_t h, int32_t y) const {
    const int64_t begin_d = static_cast<int64_t>(d) * p_.d.stride - p_.d.padding;
    const int64_t begin_h = static_cast<int64_t>(h) * p_.h.stride - p_.h.padding;
    const int64_t at_d = (z - begin_d) / p_.d.dilation, at_h = (y - begin_h) / p_.h.dilation;
    return static_cast<Tap<C>>((at_d * p_.h.kernel + at_h) * p_.w.kernel);
  }

  // Lets one row of the input take part in windows [first, first + count) of a row.
  void compare_row(const T* row, Tap<C> tap, int32_t first, int32_t count) const {
    const int64_t stride = p_.w.stride, extent = p_.w.extent;
    for (int32_t k = 0; k < p_.w.kernel; ++k) {
      // Window j has its place k at start + j stride; those in the input are between low and high.
      const int64_t start = first * stride - p_.w.padding + static_cast<int64_t>(k) * p_.w.dilation;
      const int64_t low = start < 0 ? at_most(ceil_div(-start, stride), count) : 0;
      const int64_t high = start < extent ? at_most(ceil_div(extent - start, stride), count) : 0;
      if (start >= extent) break;
      if (stride == 1) {
        compare<1>(row + start, stride, tap + k, low, high);
      } else if (stride == 2) {
        compare<2>(row + start, stride, tap + k, low, high);
      } else {
        compare<0>(row + start, stride, tap + k, low, high);
      }
    }
  }

  // kStride is the stride, or 0 where it is no constant.
  template <int kStride>
  void compare(const T* from, int64_t stride, Tap<C> tap, int64_t low, int64_t high) const {
    C* __restrict__ const best = a_.best;
    Tap<C>* __restrict__ const taps = a_.taps;
    for (int64_t j = low; j < high; ++j) {
      const C next = widen_lane(from[j * (kStride > 0 ? kStride : stride)]);
      // The first place takes part whatever it holds.
      const bool takes = (next > best[j]) | (next != next) | (taps[j] < 0);
      best[j] = takes ? next : best[j];
      taps[j] = takes ? tap : taps[j];
    }
  }

  void store(const T* input, int64_t at, int32_t d, int32_t h, int32_t first, int32_t count) const {
    const int64_t z = static_cast<int64_t>(d) * p_.d.stride - p_.d.padding;
    const int64_t y = static_cast<int64_t>(h) * p_.h.stride - p_.h.padding;
    const Divider by_w(p_.w.kernel), by_h(p_.h.kernel);
    for (int32_t j = 0; j < count; ++j) {
      if (a_.taps[j] < 0) {
        b_.indices[at + j] = kNoElement;
        b_.output[at + j] = lowest<T>();
        continue;
      }
      const uint32_t tap = static_cast<uint32_t>(a_.taps[j]), row = by_w.divide(tap), slab = by_h.divide(row);
      const int64_t x = static_cast<int64_t>(first + j) * p_.w.stride - p_.w.padding +
                        static_cast<int64_t>(tap - row * by_w.divisor) * p_.w.dilation;
      const int64_t below = y + static_cast<int64_t>(row - slab * by_h.divisor) * p_.h.dilation;
      const int64_t index = ((z + static_cast<int64_t>(slab) * p_.d.dilation) * p_.h.extent + below) * p_.w.extent + x;
      b_.indices[at + j] = index;
      b_.output[at + j] = input[index];
    }
  }

  const Pooling& p_;
  const ForwardBuffers<T>& b_;
  Arrays<C>& a_;
};

template <typename T, bool kByTaps>
Status pool_rows(const Problem& p, const ForwardBuffers<T>& b, void* workspace) {
  WorkspaceLayout layout;
  const TaskScratch<Arrays<Compute<T>>> scratch(layout, workspace);
  const Pooling pooling(p);
  const int64_t rows = p.output_numel / p.axes[2].bins;
  const int64_t most = p.input_numel > p.output_numel ? p.input_numel : p.output_numel;
  const int64_t rows_per_task = grain_for(4 * (most / rows));
  parallel_for(ceil_div(rows, rows_per_task), 1, [&](int64_t task) {
    const RowMaxima<T> maxima(pooling, b, scratch.mine());
    for (int64_t row = task * rows_per_task; row < at_most((task + 1) * rows_per_task, rows); ++row) {
      if constexpr (kByTaps) {
        maxima.row_by_taps(row);
      } else {
        maxima.row_by_windows(row);
      }
    }
  });
  return Status::kOk;
}

// Adds a plane's windows in their order. NaNs are made canonical where they arise: a later pass over all elements would
// cost more than the few that are touched.
template <typename T>
void sum_plane(const Pooling& p, const T* grad_output, const int64_t* indices, Compute<T>* sums) {
  using C = Compute<T>;
  for (int64_t i = 0; i < p.plane_numel; ++i) sums[i] = C(0);
  // Planes that divide in 32 bits are nearly all.
  const bool is_small = p.plane_numel <= INT32_MAX;
  const Divider by_w(is_small ? p.w.extent : 1), by_h(is_small ? p.h.extent : 1);
  for (int32_t d = 0; d < p.d.bins; ++d) {
    const PoolRange ds = window_of(p.d, d);
    for (int32_t h = 0; h < p.h.bins; ++h) {
      const PoolRange hs = window_of(p.h, h);
      for (int32_t w = 0; w < p.w.bins; ++w, ++grad_output, ++indices) {
        const int64_t index = *indices;
        if (index < 0 || index >= p.plane_numel) continue;
        int64_t row, slab;
        if (is_small) {
          row = by_w.divide(static_cast<uint32_t>(index)), slab = by_h.divide(static_cast<uint32_t>(row));
        } else {
          row = index / p.w.extent, slab = row / p.h.extent;
        }
        const int32_t x = static_cast<int32_t>(index - row * p.w.extent);
        const int32_t y = static_cast<int32_t>(row - slab * p.h.extent);
        if (!spans(window_of(p.w, w), x) || !spans(hs, y) || !spans(ds, static_cast<int32_t>(slab))) continue;
        sums[index] = narrow<C>(sums[index] + widen(*grad_output));
      }
    }
  }
}

template <typename T>
struct BackwardScratch {
  static constexpr bool kHasTotals = !std::is_same_v<T, Compute<T>>;
  WorkspaceLayout layout;
  Compute<T>* totals;  // [planes, plane_numel], of 16-bit types: others have theirs in grad_input

  BackwardScratch(const Problem& p, void* workspace) {
    totals = workspace_array<Compute<T>>(workspace, layout.reserve<Compute<T>>(kHasTotals ? p.input_numel : 0));
  }
};

template <typename T>
Status sum_planes(const Problem& p, const BackwardBuffers<T>& b, void* workspace) {
  const BackwardScratch<T> scratch(p, workspace);
  const Pooling pooling(p);
  parallel_for(p.planes, grain_for(p.plane_numel + 4 * p.plane_bins), [&](int64_t plane) {
    T* const out = b.grad_input + plane * p.plane_numel;
    const T* const gradient = b.grad_output + plane * p.plane_bins;
    const int64_t* const indices = b.indices + plane * p.plane_bins;
    if constexpr (BackwardScratch<T>::kHasTotals) {
      Compute<T>* const totals = scratch.totals + plane * p.plane_numel;
      sum_plane(pooling, gradient, indices, totals);
      narrow_row<T>(totals, out, p.plane_numel);
    } else {
      sum_plane(pooling, gradient, indices, out);
    }
  });
  return Status::kOk;
}

template <typename T>
struct TapsPath {
  static const char* name() { return "taps"; }
  const Request<Problem, ForwardBuffers<T>>& call;
  bool can() const { return !call.p.axes[2].is_adaptive() && call.p.input_numel > 0; }
  Status enqueue() const { return pool_rows<T, true>(call.p, call.b, call.workspace); }
};

template <typename T>
struct WindowsPath {
  static const char* name() { return "windows"; }
  const Request<Problem, ForwardBuffers<T>>& call;
  Status enqueue() const { return pool_rows<T, false>(call.p, call.b, call.workspace); }
};

template <typename T>
Status run(const Problem& p, const ForwardBuffers<T>& b, void* workspace) {
  return Paths<TapsPath<T>, WindowsPath<T>>::enqueue(Request<Problem, ForwardBuffers<T>>{p, b, workspace});
}

template <typename T>
size_t bytes_of(const Problem& p, const ForwardBuffers<T>*) {
  if (p.output_numel == 0) return 0;
  WorkspaceLayout layout;
  const TaskScratch<Arrays<Compute<T>>> scratch(layout, nullptr);
  return layout.bytes();
}

template <typename T>
struct ZerosPath {
  static const char* name() { return "zeros"; }
  const Request<Problem, BackwardBuffers<T>>& call;
  bool can() const { return call.p.output_numel == 0; }
  size_t bytes() const { return 0; }
  Status enqueue() const { return write_zeros(call.b.grad_input, call.p.input_numel); }
};

template <typename T>
struct PlanesPath {
  static const char* name() { return "planes"; }
  const Request<Problem, BackwardBuffers<T>>& call;
  size_t bytes() const { return BackwardScratch<T>(call.p, nullptr).layout.bytes(); }
  Status enqueue() const { return sum_planes(call.p, call.b, call.workspace); }
};

template <typename T>
using BackwardPaths = Paths<ZerosPath<T>, PlanesPath<T>>;

template <typename T>
Status run(const Problem& p, const BackwardBuffers<T>& b, void* workspace) {
  return BackwardPaths<T>::enqueue(Request<Problem, BackwardBuffers<T>>{p, b, workspace});
}

template <typename T>
size_t bytes_of(const Problem& p, const BackwardBuffers<T>*) {
  const BackwardBuffers<T> none{};
  return BackwardPaths<T>::choose(Request<Problem, BackwardBuffers<T>>{p, none, nullptr},
                                  [](const auto& path) { return path.bytes(); });
}

}  // namespace

BARACUDA_FLOAT_TYPES(BARACUDA_PROVIDE_BOTH_DIRECTIONS)

}  // namespace baracuda::max_pool
