// SPDX-License-Identifier: Apache-2.0
// Fractional maximum pooling on the CPU. Threads own what they write. Compiled once per instruction set.
//
//   forward path   calls                       what a task is
//   places         windows of a row that are   some rows of windows: the maxima of windows at every place of a row, of
//                  few elements apart          which those are taken where one begins
//   windows        all                         some rows of windows, one window after the other
//
//   backward path  calls                       what a task is
//   zeros          without windows             some elements
//   planes         all                         a plane, to which its windows are added in their order
#include <type_traits>

#include "core/cpu_convert.h"
#include "core/cpu_launch.h"
#include "core/cpu_parallel.h"
#include "core/cpu_pool_sums.h"
#include "core/cpu_zeros.h"
#include "core/paths.h"
#include "core/workspace.h"
#include "ops/fractional_max_pool/launch.h"
#include "ops/fractional_max_pool/math.h"
#include "ops/max_pool/math.h"

namespace baracuda::fractional_max_pool {
namespace {

// Places, and windows, of a row that are kept at a time; the arrays of one thread are then 20 KiB in f64.
constexpr int32_t kPlaces = 1024;

// Vectors of eight lanes find the maxima at every place, and a window by itself takes as long as one such vector.
constexpr int64_t kMostApart = 6;

// An integer as wide as what is compared, so that both fill vectors alike.
template <typename C>
using Tap = std::conditional_t<sizeof(C) == 8, int64_t, int32_t>;

template <typename C>
struct Arrays {
  C best[kPlaces];
  Tap<C> taps[kPlaces];     // which of its window's elements each holds, in row-major order
  int32_t starts[kPlaces];  // where windows begin along the row
};

// widen() for loops over elements, which compilers vectorise.
inline float widen_lane(float x) { return x; }
inline double widen_lane(double x) { return x; }
inline float widen_lane(Half x) { return widen_by_bits(x); }
inline float widen_lane(Bfloat16 x) { return widen(x); }

template <typename T, bool kByPlaces>
class RowMaxima {
 public:
  using C = Compute<T>;

  RowMaxima(const Pooling<C>& p, const ForwardBuffers<T>& b, Arrays<C>& arrays)
      : p_(p), b_(b), a_(arrays), by_w_(p.w.kernel), by_h_(p.h.kernel) {}

  void row(int64_t row) {
    const int64_t slab = row / p_.h.bins, plane = slab / p_.d.bins;
    const Samples<C> samples = samples_of(b_.random_samples + plane * p_.num_samples, p_.num_samples);
    const int32_t z = p_.d.of(samples.d, static_cast<int32_t>(slab % p_.d.bins));
    const int32_t y = p_.h.of(samples.h, static_cast<int32_t>(row % p_.h.bins));
    const int64_t corner = (static_cast<int64_t>(z) * p_.h.extent + y) * p_.w.extent;
    const T* const input = b_.input + plane * p_.plane_numel;
    for (int32_t rest = p_.w.bins; rest > 0; rest -= kPlaces) {
      const int32_t first = p_.w.bins - rest, count = rest < kPlaces ? rest : kPlaces;
      find_starts(samples.w, plane, first, count);
      if constexpr (kByPlaces) {
        windows_by_places(input, corner, row * p_.w.bins + first, count);
      } else {
        for (int32_t j = 0; j < count; ++j) one_window(input, corner + a_.starts[j], row * p_.w.bins + first + j);
      }
    }
  }

 private:
  // All rows of a plane have the same.
  void find_starts(C sample, int64_t plane, int32_t first, int32_t count) {
    if (plane == plane_ && first == first_) return;
    plane_ = plane, first_ = first;
    for (int32_t j = 0; j < count; ++j) a_.starts[j] = p_.w.of(sample, first + j);
  }

  // `corner` is the windows' first element, but for their starts along the row; these never descend, whatever the
  // sample: every step from a window's number to its start keeps the order.
  void windows_by_places(const T* input, int64_t corner, int64_t at, int32_t count) const {
    int32_t j = 0;
    while (j < count) {
      const int32_t begin = a_.starts[j], rest = a_.starts[count - 1] - begin;
      const int32_t places = rest < kPlaces ? rest + 1 : kPlaces;
      maxima(input + corner + begin, places);
      for (; j < count && a_.starts[j] - begin < places; ++j) {
        store(input, corner + a_.starts[j], static_cast<uint32_t>(a_.taps[a_.starts[j] - begin]), at + j);
      }
    }
  }

  // Of windows at each of some neighbouring places, the first of which is at `corner`.
  void maxima(const T* corner, int32_t places) const {
    C* __restrict__ const best = a_.best;
    Tap<C>* __restrict__ const taps = a_.taps;
    for (int32_t i = 0; i < places; ++i) best[i] = widen_lane(corner[i]);
    for (int32_t i = 0; i < places; ++i) taps[i] = 0;
    Tap<C> tap = 0;
    for (int32_t z = 0; z < p_.d.kernel; ++z) {
      for (int32_t y = 0; y < p_.h.kernel; ++y) {
        const T* row = corner + (static_cast<int64_t>(z) * p_.h.extent + y) * p_.w.extent;
        for (int32_t k = 0; k < p_.w.kernel; ++k, ++row, ++tap) {
          for (int32_t i = 0; i < places; ++i) {
            const C next = widen_lane(row[i]);
            // The first element is taken again only where it is NaN, and stays the first.
            const bool takes = (next > best[i]) | (next != next);
            best[i] = takes ? next : best[i];
            taps[i] = takes ? tap : taps[i];
          }
        }
      }
    }
  }

  void one_window(const T* input, int64_t corner, int64_t at) const {
    C best = widen(input[corner]);
    uint32_t kept = 0, tap = 0;
    for (int32_t z = 0; z < p_.d.kernel; ++z) {
      for (int32_t y = 0; y < p_.h.kernel; ++y) {
        const T* const row = input + corner + (static_cast<int64_t>(z) * p_.h.extent + y) * p_.w.extent;
        for (int32_t k = 0; k < p_.w.kernel; ++k, ++tap) {
          const C next = widen(row[k]);
          if (!max_pool::takes_over(next, best)) continue;
          best = next;
          kept = tap;
        }
      }
    }
    store(input, corner, kept, at);
  }

  void store(const T* input, int64_t corner, uint32_t tap, int64_t at) const {
    const uint32_t row = by_w_.divide(tap), slab = by_h_.divide(row);
    const int64_t rows = static_cast<int64_t>(slab) * p_.h.extent + (row - slab * by_h_.divisor);
    const int64_t index = corner + rows * p_.w.extent + (tap - row * by_w_.divisor);
    b_.indices[at] = index;
    b_.output[at] = input[index];
  }

  const Pooling<C>& p_;
  const ForwardBuffers<T>& b_;
  Arrays<C>& a_;
  const Divider by_w_, by_h_;
  // Whose starts are at hand.
  int64_t plane_ = -1;
  int32_t first_ = 0;
};

template <typename T, bool kByPlaces>
Status pool_rows(const Problem& p, const ForwardBuffers<T>& b, void* workspace) {
  WorkspaceLayout layout;
  const TaskScratch<Arrays<Compute<T>>> scratch(layout, workspace);
  const Pooling<Compute<T>> pooling(p);
  const int64_t rows = p.output_numel / p.axes[2].bins;
  const int64_t rows_per_task = grain_for(4 * (p.input_numel / rows));
  parallel_for(ceil_div(rows, rows_per_task), 1, [&](int64_t task) {
    RowMaxima<T, kByPlaces> maxima(pooling, b, scratch.mine());
    for (int64_t row = task * rows_per_task; row < at_most((task + 1) * rows_per_task, rows); ++row) maxima.row(row);
  });
  return Status::kOk;
}

template <typename T>
struct PlacesPath {
  static const char* name() { return "places"; }
  const Request<Problem, ForwardBuffers<T>>& call;
  bool can() const {
    const Axis& w = call.p.axes[2];
    return w.extent - w.kernel <= kMostApart * w.bins;
  }
  Status enqueue() const { return pool_rows<T, true>(call.p, call.b, call.workspace); }
};

template <typename T>
struct WindowsPath {
  static const char* name() { return "windows"; }
  const Request<Problem, ForwardBuffers<T>>& call;
  Status enqueue() const { return pool_rows<T, false>(call.p, call.b, call.workspace); }
};

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
  size_t bytes() const { return PlaneSums<T>(call.p, nullptr).layout.bytes(); }
  Status enqueue() const {
    const PlaneSums<T> sums(call.p, call.workspace);
    const Gathering gathering(call.p);
    if (gathering.is_small()) {
      sums.template add<int32_t>(call.p, call.b, gathering);
    } else {
      sums.template add<int64_t>(call.p, call.b, gathering);
    }
    return Status::kOk;
  }
};

template <typename T>
using BackwardPaths = Paths<ZerosPath<T>, PlanesPath<T>>;

template <typename T>
Status run(const Problem& p, const ForwardBuffers<T>& b, void* workspace) {
  return Paths<PlacesPath<T>, WindowsPath<T>>::enqueue(Request<Problem, ForwardBuffers<T>>{p, b, workspace});
}

template <typename T>
Status run(const Problem& p, const BackwardBuffers<T>& b, void* workspace) {
  return BackwardPaths<T>::enqueue(Request<Problem, BackwardBuffers<T>>{p, b, workspace});
}

template <typename T>
size_t bytes_of(const Problem& p, const ForwardBuffers<T>*) {
  if (p.output_numel == 0) return 0;
  WorkspaceLayout layout;
  const TaskScratch<Arrays<Compute<T>>> scratch(layout, nullptr);
  return layout.bytes();
}

template <typename T>
size_t bytes_of(const Problem& p, const BackwardBuffers<T>*) {
  const BackwardBuffers<T> none{};
  return BackwardPaths<T>::choose(Request<Problem, BackwardBuffers<T>>{p, none, nullptr},
                                  [](const auto& path) { return path.bytes(); });
}

}  // namespace

BARACUDA_FLOAT_TYPES(BARACUDA_PROVIDE_BOTH_DIRECTIONS)

}  // namespace baracuda::fractional_max_pool
