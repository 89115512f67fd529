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
    for (int32_t first = 0; first < p_.w.bins; first += kPlaces) {
      const int32_t rest = p_.w.bins - first, count = rest < kPlaces ? rest : kPlaces;
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

// Division by a number that is constant during a call; N is int32_t only where everything is small.
template <typename N>
struct Quotient {
  Divider by;
  explicit Quotient(int64_t divisor) : by(divisor) {}
  N operator()(N number) const {
    // Divider's own, without a jump.
    const uint64_t product = static_cast<uint64_t>(static_cast<uint32_t>(number)) * by.multiplier;
    return by.divisor == 1 ? number : static_cast<N>(static_cast<uint32_t>(product >> 32) >> by.shift);
  }
};
template <>
struct Quotient<int64_t> {
  int64_t by;
  explicit Quotient(int64_t divisor) : by(divisor) {}
  int64_t operator()(int64_t number) const { return number / by; }
};

// Windows of a row that are looked at together: 8 KiB of what is found out about them.
constexpr int32_t kTogether = 512;

// Finds which elements a row's windows give their gradients to, in loops that compilers vectorise.
template <typename N>
class RowElements {
  using Unsigned = std::make_unsigned_t<N>;

 public:
  explicit RowElements(const Gathering& p)
      : p_(p),
        width_(p.w.extent),
        slab_numel_(static_cast<int64_t>(p.w.extent) * p.h.extent),
        by_width_(width_),
        by_slab_(slab_numel_) {}

  // The elements that windows may hold whose first axes' spans are these.
  void set_rows(const Range& ds, const Range& hs) {
    begin_ = ds.first * slab_numel_ + hs.first * width_;
    rows_numel_ = (hs.end - hs.first) * width_;
    numel_ = (ds.end - ds.first - 1) * slab_numel_ + rows_numel_;
  }

  // Of windows [first, first + count) of a row the elements that `indices` name, or -1 where a window cannot hold it.
  const N* find(const int64_t* indices, int32_t first, int32_t count) {
    find_spans(first, count);
    const N width = static_cast<N>(width_), slab_numel = static_cast<N>(slab_numel_);
    const N rows_numel = static_cast<N>(rows_numel_);
    const Unsigned begin = static_cast<Unsigned>(begin_), numel = static_cast<Unsigned>(numel_);
    for (int32_t j = 0; j < count; ++j) {
      const N index = static_cast<N>(indices[j]);
      // What comes before the first is a large number.
      const Unsigned counted = static_cast<Unsigned>(index) - begin;
      const bool is_near = (index == indices[j]) & (counted < numel);
      // What is not near is divided as if it were the first.
      const N near = is_near ? static_cast<N>(counted) : 0;
      const N in_slab = near - by_slab_(near) * slab_numel;
      const int32_t x = static_cast<int32_t>(in_slab - by_width_(in_slab) * width);
      const bool holds = is_near & (in_slab < rows_numel) & (x >= firsts_[j]) & (x < ends_[j]);
      elements_[j] = holds ? index : -1;
    }
    return elements_;
  }

 private:
  // All rows of windows have the same spans along themselves.
  void find_spans(int32_t first, int32_t count) {
    if (first == first_) return;
    first_ = first;
    for (int32_t j = 0; j < count; ++j) {
      const Range span = p_.w.of<N>(first + j);
      firsts_[j] = span.first, ends_[j] = span.end;
    }
  }

  const Gathering& p_;
  const int64_t width_, slab_numel_;
  const Quotient<N> by_width_, by_slab_;
  int64_t begin_ = 0, rows_numel_ = 0, numel_ = 0;
  int32_t first_ = -1;  // whose spans are at hand
  int32_t firsts_[kTogether], ends_[kTogether];
  N elements_[kTogether];
};

// Adds a plane's windows in their order. NaNs are made canonical where they arise: a later pass over all elements would
// cost more than the few that are touched.
template <typename N, typename T>
void sum_plane(const Gathering& p, const T* grad_output, const int64_t* indices, Compute<T>* sums) {
  using C = Compute<T>;
  for (int64_t i = 0; i < p.plane_numel; ++i) sums[i] = C(0);
  RowElements<N> row(p);
  for (int32_t d = 0; d < p.d.bins; ++d) {
    const Range ds = p.d.of<N>(d);
    for (int32_t h = 0; h < p.h.bins; ++h) {
      row.set_rows(ds, p.h.of<N>(h));
      for (int32_t first = 0; first < p.w.bins; first += kTogether) {
        const int32_t rest = p.w.bins - first, count = rest < kTogether ? rest : kTogether;
        const N* const elements = row.find(indices, first, count);
        for (int32_t j = 0; j < count; ++j) {
          if (elements[j] < 0) continue;
          C& sum = sums[elements[j]];
          sum = narrow<C>(sum + widen(grad_output[j]));
        }
        grad_output += count, indices += count;
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
  size_t bytes() const { return BackwardScratch<T>(call.p, nullptr).layout.bytes(); }
  Status enqueue() const {
    const Problem& p = call.p;
    const BackwardScratch<T> scratch(p, call.workspace);
    const Gathering gathering(p);
    const auto sum = gathering.is_small() ? sum_plane<int32_t, T> : sum_plane<int64_t, T>;
    parallel_for(p.planes, grain_for(p.plane_numel + 4 * p.plane_bins), [&](int64_t plane) {
      T* const out = call.b.grad_input + plane * p.plane_numel;
      const T* const gradient = call.b.grad_output + plane * p.plane_bins;
      const int64_t* const indices = call.b.indices + plane * p.plane_bins;
      if constexpr (BackwardScratch<T>::kHasTotals) {
        Compute<T>* const totals = scratch.totals + plane * p.plane_numel;
        sum(gathering, gradient, indices, totals);
        narrow_row<T>(totals, out, p.plane_numel);
      } else {
        sum(gathering, gradient, indices, out);
      }
    });
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
