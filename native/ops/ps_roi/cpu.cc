// SPDX-License-Identifier: Apache-2.0
// Position-sensitive pooling on the CPU. Threads own what they write. Compiled once per instruction set.
//
//   forward path   calls          what a task is
//   bins           all            the bins of a box and a channel
//
//   backward path  calls          what a task is
//   zeros          without boxes  some elements
//   planes         all            a map of an image, whose one bin of each box it adds
#include <type_traits>

#include "core/cpu_convert.h"
#include "core/cpu_launch.h"
#include "core/cpu_parallel.h"
#include "core/cpu_zeros.h"
#include "core/paths.h"
#include "core/workspace.h"
#include "ops/ps_roi/launch.h"
#include "ops/ps_roi/math.h"
#include "ops/roi_align/cpu_tables.h"

namespace baracuda::ps_roi {
namespace {

// The boxes by samples.
template <typename C>
struct SampledBoxes {
  roi_align::BoxTables<C> tables;

  SampledBoxes(const Problem& p, const C* rois, void* workspace) : tables(p.boxes, workspace) {
    // Without pixels there are no tables, and no box is asked for.
    if (p.boxes.input_numel == 0 || p.boxes.output_numel == 0) return;
    parallel_for(p.num_rois, grain_for(8 * (tables.y_capacity + tables.x_capacity)), [&](int64_t r) {
      const roi_align::Box<C> box = roi_align::make_box(rois + 5 * r, p.boxes);
      tables.boxes[r] = box;
      if (box.image < 0) return;
      roi_align::tabulate_axis(box.y, p.pooled_h, tables.y_bins + r * p.pooled_h,
                               tables.y_weights + r * tables.y_capacity, tables.y_capacity);
      roi_align::tabulate_axis(box.x, p.pooled_w, tables.x_bins + r * p.pooled_w,
                               tables.x_weights + r * tables.x_capacity, tables.x_capacity);
    });
  }
  static size_t bytes(const Problem& p) { return roi_align::BoxTables<C>(p.boxes, nullptr).bytes; }

  int32_t image(int64_t r) const { return tables.boxes[r].image; }

  template <typename T>
  C pooled(const Problem& p, int64_t r, int32_t ph, int32_t pw, const T* plane) const {
    return samples_of(plane, p.w, tables.y(r), ph, tables.x(r), pw);
  }

  // Adds a bin's gradient to its map's sums. NaNs are made canonical where they arise.
  void add(const Problem& p, int64_t r, int32_t ph, int32_t pw, C grad, C* sums) const {
    const auto y = tables.y(r), x = tables.x(r);
    const roi_align::BinEntry rows = y.bins[ph], columns = x.bins[pw];
    for (int32_t row = rows.pixels.first; row <= rows.pixels.last; ++row) {
      const C row_weight = y.weight(ph, rows, row);
      if (row_weight == C(0)) continue;
      const C of_row = row_weight * grad;
      C* const pixels = sums + static_cast<int64_t>(row) * p.w;
      for (int32_t column = columns.pixels.first; column <= columns.pixels.last; ++column) {
        const C weight = x.weight(pw, columns, column);
        if (weight != C(0)) pixels[column] = narrow<C>(fma(weight, of_row, pixels[column]));
      }
    }
  }
};

// The boxes by averages, made where they are used.
template <typename C>
struct AveragedBoxes {
  const Problem& p;
  const C* rois;

  AveragedBoxes(const Problem& problem, const C* rows, void*) : p(problem), rois(rows) {}
  static size_t bytes(const Problem&) { return 0; }

  int32_t image(int64_t r) const { return AverageBox<C>(rois + 5 * r, p).image; }

  template <typename T>
  C pooled(const Problem&, int64_t r, int32_t ph, int32_t pw, const T* plane) const {
    return mean_of(plane, p.w, AverageBox<C>(rois + 5 * r, p).pixels(ph, pw));
  }

  void add(const Problem&, int64_t r, int32_t ph, int32_t pw, C grad, C* sums) const {
    const Pixels pixels = AverageBox<C>(rois + 5 * r, p).pixels(ph, pw);
    if (pixels.none()) return;
    const C share = grad / pixels.template area<C>();
    for (int32_t row = pixels.rows.first; row <= pixels.rows.last; ++row) {
      C* const of_row = sums + static_cast<int64_t>(row) * p.w;
      for (int32_t column = pixels.columns.first; column <= pixels.columns.last; ++column) {
        of_row[column] = narrow<C>(of_row[column] + share);
      }
    }
  }
};

template <typename C, Kind kKind>
using Boxes = std::conditional_t<kKind == Kind::kSamples, SampledBoxes<C>, AveragedBoxes<C>>;

template <typename T, Kind kKind>
Status pool_all(const Problem& p, const ForwardBuffers<T, kKind>& b, void* workspace) {
  using C = Compute<T>;
  const int64_t bins = p.bins(), plane = p.plane();
  const Boxes<C, kKind> boxes(p, b.rois, workspace);
  parallel_for(static_cast<int64_t>(p.num_rois) * p.c, grain_for(16 * bins), [&](int64_t task) {
    const int64_t r = task / p.c, channel = task % p.c;
    T* const output = b.output + task * bins;
    const int32_t image = p.input_numel > 0 ? boxes.image(r) : -1;
    for (int64_t bin = 0; bin < bins; ++bin) {
      C value = C(0);
      if (image >= 0) {
        const T* const map = b.input + ((static_cast<int64_t>(image) * p.c + channel) * bins + bin) * plane;
        value = boxes.pooled(p, r, static_cast<int32_t>(bin / p.pooled_w), static_cast<int32_t>(bin % p.pooled_w), map);
      }
      output[bin] = narrow<T>(value);
    }
  });
  return Status::kOk;
}

// The backward's workspace behind the boxes', for a problem in which there is something to read and to write.
template <typename T>
struct BackwardScratch {
  WorkspaceLayout layout;
  int32_t* begins;     // [n + 1]: where each image's boxes begin in `boxes`
  int32_t* boxes;      // [num_rois]: ascending within an image; boxes of no image are left out
  Compute<T>* totals;  // of grad_input, of 16-bit types: others have theirs in grad_input

  BackwardScratch(const Problem& p, void* workspace) {
    constexpr bool kHasTotals = !std::is_same_v<T, Compute<T>>;
    begins = workspace_array<int32_t>(workspace, layout.reserve<int32_t>(int64_t{p.n} + 1));
    boxes = workspace_array<int32_t>(workspace, layout.reserve<int32_t>(p.num_rois));
    totals = workspace_array<Compute<T>>(workspace, layout.reserve<Compute<T>>(kHasTotals ? p.input_numel : 0));
  }

  // A counting sort.
  template <class Found>
  void sort(const Problem& p, const Found& found) const {
    for (int64_t image = 0; image <= p.n; ++image) begins[image] = 0;
    for (int64_t r = 0; r < p.num_rois; ++r) {
      const int32_t image = found.image(r);
      if (image >= 0) ++begins[image];
    }
    for (int64_t image = 1; image <= p.n; ++image) begins[image] += begins[image - 1];
    // From the last box to the first, so that what were ends become begins.
    for (int64_t r = p.num_rois - 1; r >= 0; --r) {
      const int32_t image = found.image(r);
      if (image >= 0) boxes[--begins[image]] = static_cast<int32_t>(r);
    }
  }
};

template <typename T, Kind kKind>
Status sum_all(const Problem& p, const BackwardBuffers<T, kKind>& b, void* workspace) {
  using C = Compute<T>;
  const Boxes<C, kKind> boxes(p, b.rois, workspace);
  const BackwardScratch<T> scratch(p, workspace_array<char>(workspace, Boxes<C, kKind>::bytes(p)));
  scratch.sort(p, boxes);
  const int64_t bins = p.bins(), plane = p.plane(), maps = p.c * bins;
  const int64_t work = plane + 16 * (p.num_rois / p.n + 1);
  parallel_for(p.n * maps, grain_for(work), [&](int64_t task) {
    const int64_t image = task / maps, map = task % maps, bin = map % bins;
    const int32_t ph = static_cast<int32_t>(bin / p.pooled_w), pw = static_cast<int32_t>(bin % p.pooled_w);
    T* const out = b.grad_input + task * plane;
    C* sums = nullptr;
    if constexpr (std::is_same_v<T, C>) {
      sums = out;
    } else {
      sums = scratch.totals + task * plane;
    }
    for (int64_t i = 0; i < plane; ++i) sums[i] = C(0);
    for (int32_t k = scratch.begins[image]; k < scratch.begins[image + 1]; ++k) {
      const int64_t r = scratch.boxes[k];
      boxes.add(p, r, ph, pw, widen(b.grad_output[r * maps + map]), sums);
    }
    if constexpr (!std::is_same_v<T, C>) narrow_row<T>(sums, out, plane);
  });
  return Status::kOk;
}

template <typename T, Kind kKind>
struct BinsPath {
  static const char* name() { return "bins"; }
  const Request<Problem, ForwardBuffers<T, kKind>>& call;
  Status enqueue() const { return pool_all(call.p, call.b, call.workspace); }
};

template <typename T, Kind kKind>
struct ZerosPath {
  static const char* name() { return "zeros"; }
  const Request<Problem, BackwardBuffers<T, kKind>>& call;
  bool can() const { return call.p.input_numel == 0 || call.p.output_numel == 0; }
  size_t bytes() const { return 0; }
  Status enqueue() const { return write_zeros(call.b.grad_input, call.p.input_numel); }
};

template <typename T, Kind kKind>
struct PlanesPath {
  static const char* name() { return "planes"; }
  const Request<Problem, BackwardBuffers<T, kKind>>& call;
  size_t bytes() const {
    return Boxes<Compute<T>, kKind>::bytes(call.p) + BackwardScratch<T>(call.p, nullptr).layout.bytes();
  }
  Status enqueue() const { return sum_all(call.p, call.b, call.workspace); }
};

template <typename T, Kind kKind>
using BackwardPaths = Paths<ZerosPath<T, kKind>, PlanesPath<T, kKind>>;

template <typename T, Kind kKind>
Status run(const Problem& p, const ForwardBuffers<T, kKind>& b, void* workspace) {
  return Paths<BinsPath<T, kKind>>::enqueue(Request<Problem, ForwardBuffers<T, kKind>>{p, b, workspace});
}

template <typename T, Kind kKind>
size_t bytes_of(const Problem& p, const ForwardBuffers<T, kKind>*) {
  return Boxes<Compute<T>, kKind>::bytes(p);
}

template <typename T, Kind kKind>
Status run(const Problem& p, const BackwardBuffers<T, kKind>& b, void* workspace) {
  return BackwardPaths<T, kKind>::enqueue(Request<Problem, BackwardBuffers<T, kKind>>{p, b, workspace});
}

template <typename T, Kind kKind>
size_t bytes_of(const Problem& p, const BackwardBuffers<T, kKind>*) {
  const BackwardBuffers<T, kKind> none{};
  return BackwardPaths<T, kKind>::choose(Request<Problem, BackwardBuffers<T, kKind>>{p, none, nullptr},
                                         [](const auto& path) { return path.bytes(); });
}

}  // namespace

BARACUDA_FLOAT_TYPES(BARACUDA_PROVIDE_BOTH_KINDS)

}  // namespace baracuda::ps_roi
