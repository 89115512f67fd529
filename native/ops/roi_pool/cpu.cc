// SPDX-License-Identifier: Apache-2.0
// RoIPool on the CPU. Threads own what they write. Compiled once per instruction set.
//
//   forward path   calls          what a task is
//   bins           all            a channel of a box
//
//   backward path  calls          what a task is
//   zeros          without bins   some elements
//   planes         all            a plane of an image, which adds what its image's boxes send it
#include <type_traits>

#include "core/cpu_convert.h"
#include "core/cpu_launch.h"
#include "core/cpu_parallel.h"
#include "core/cpu_zeros.h"
#include "core/paths.h"
#include "core/workspace.h"
#include "ops/roi_pool/launch.h"
#include "ops/roi_pool/math.h"

namespace baracuda::roi_pool {
namespace {

// The pixel that a bin keeps, kNoPixel of an empty one.
template <typename T>
int32_t pool_bin(const T* plane, int32_t width, PixelRange rows, PixelRange columns) {
  if (rows.first >= rows.end || columns.first >= columns.end) return kNoPixel;
  int32_t kept = rows.first * width + columns.first;
  Compute<T> best = widen(plane[kept]);
  for (int32_t row = rows.first; row < rows.end; ++row) {
    const T* pixels = plane + static_cast<int64_t>(row) * width;
    for (int32_t column = columns.first; column < columns.end; ++column) {
      const Compute<T> next = widen(pixels[column]);
      if (!takes_over(next, best)) continue;
      best = next;
      kept = row * width + column;
    }
  }
  return kept;
}

template <typename T>
Status pool_all(const Problem& p, const ForwardBuffers<T>& b) {
  using C = Compute<T>;
  const int64_t bins = p.bins();
  parallel_for(static_cast<int64_t>(p.num_rois) * p.c, grain_for(16 * bins), [&](int64_t task) {
    const int64_t r = task / p.c, channel = task % p.c;
    T* output = b.output + task * bins;
    int32_t* argmax = b.argmax + task * bins;
    const Box<C> box = make_box(b.rois + 5 * r, p);
    if (box.image < 0 || p.plane() == 0) {
      for (int64_t i = 0; i < bins; ++i) output[i] = narrow<T>(C(0));
      for (int64_t i = 0; i < bins; ++i) argmax[i] = kNoPixel;
      return;
    }
    const T* plane = b.input + (static_cast<int64_t>(box.image) * p.c + channel) * p.plane();
    for (int32_t ph = 0; ph < p.pooled_h; ++ph) {
      const PixelRange rows = bin_pixels(box.y, ph);
      for (int32_t pw = 0; pw < p.pooled_w; ++pw) {
        const int32_t kept = pool_bin(plane, p.w, rows, bin_pixels(box.x, pw));
        *argmax++ = kept;
        *output++ = kept == kNoPixel ? narrow<T>(C(0)) : plane[kept];
      }
    }
  });
  return Status::kOk;
}

// The backward's workspace, for a problem in which there is something to read and to write.
template <typename T>
struct BackwardScratch {
  WorkspaceLayout layout;
  int32_t* begins;      // [n + 1]: where each image's boxes begin in `boxes`
  int32_t* boxes;       // [num_rois]: ascending within an image; boxes of no image are left out
  Compute<T>* totals;   // [n c h w], of 16-bit types: others have theirs in grad_input
  Compute<T>* partials; // [n c h w], where the sum is cut into several blocks

  BackwardScratch(const Problem& p, void* workspace) {
    constexpr bool kHasTotals = !std::is_same_v<T, Compute<T>>;
    begins = workspace_array<int32_t>(workspace, layout.reserve<int32_t>(int64_t{p.n} + 1));
    boxes = workspace_array<int32_t>(workspace, layout.reserve<int32_t>(p.num_rois));
    totals = workspace_array<Compute<T>>(workspace, layout.reserve<Compute<T>>(kHasTotals ? p.input_numel : 0));
    partials = workspace_array<Compute<T>>(workspace, layout.reserve<Compute<T>>(p.blocks() > 1 ? p.input_numel : 0));
  }

  // A counting sort.
  void sort_boxes(const Problem& p, const Compute<T>* rois) const {
    for (int64_t image = 0; image <= p.n; ++image) begins[image] = 0;
    for (int64_t r = 0; r < p.num_rois; ++r) {
      const int32_t image = image_of(rois[5 * r], p.n);
      if (image >= 0) ++begins[image];
    }
    for (int64_t image = 1; image <= p.n; ++image) begins[image] += begins[image - 1];
    // From the last box to the first, so that what were ends become begins.
    for (int64_t r = p.num_rois - 1; r >= 0; --r) {
      const int32_t image = image_of(rois[5 * r], p.n);
      if (image >= 0) boxes[--begins[image]] = static_cast<int32_t>(r);
    }
  }
};

// Adds a box's bins to a plane's sums. NaNs are made canonical where they arise: a later pass over all pixels would
// cost more than the few that are touched.
template <typename T>
void add_box(const T* grad, const int32_t* argmax, int64_t bins, int64_t plane, Compute<T>* sums) {
  using C = Compute<T>;
  for (int64_t i = 0; i < bins; ++i) {
    const int64_t pixel = argmax[i];
    if (pixel < 0 || pixel >= plane) continue;
    sums[pixel] = narrow<C>(sums[pixel] + widen(grad[i]));
  }
}

template <typename C>
void clear(C* sums, int64_t count) {
  for (int64_t i = 0; i < count; ++i) sums[i] = C(0);
}

template <typename C>
void add_partials(const C* __restrict__ partials, int64_t count, C* __restrict__ totals) {
  for (int64_t i = 0; i < count; ++i) totals[i] = narrow<C>(totals[i] + partials[i]);
}

// The sums of one plane: the partial sum of the boxes of one block after the other. `partials` is used where there are
// several blocks; the only block's partial sum is the total, since adding it to +0 changes no bits: no sum is -0.
template <typename T>
void sum_plane(const Problem& p, const BackwardBuffers<T>& b, const BackwardScratch<T>& scratch, int32_t image,
               int64_t channel, Compute<T>* totals, Compute<T>* partials) {
  const int64_t bins = p.bins(), plane = p.plane();
  const bool is_cut = p.blocks() > 1;
  Compute<T>* const sums = is_cut ? partials : totals;
  clear(totals, plane);
  int64_t end = 0;  // of the block whose sums are `partials`; a block without boxes of this image has none
  for (int32_t k = scratch.begins[image]; k < scratch.begins[image + 1]; ++k) {
    const int64_t r = scratch.boxes[k];
    if (is_cut && r >= end) {
      if (end > 0) add_partials(partials, plane, totals);
      clear(partials, plane);
      end = (r / p.rois_per_block + 1) * p.rois_per_block;
    }
    const int64_t first = (r * p.c + channel) * bins;
    add_box(b.grad_output + first, b.argmax + first, bins, plane, sums);
  }
  if (end > 0) add_partials(partials, plane, totals);
}

template <typename T>
Status sum_all(const Problem& p, const BackwardBuffers<T>& b, void* workspace) {
  using C = Compute<T>;
  const BackwardScratch<T> scratch(p, workspace);
  scratch.sort_boxes(p, b.rois);
  const int64_t planes = static_cast<int64_t>(p.n) * p.c, plane = p.plane();
  const int64_t boxes_per_image = p.num_rois / p.n + 1;
  const int64_t work = plane + (p.bins() < plane ? p.bins() : plane) * boxes_per_image;
  parallel_for(planes, grain_for(work), [&](int64_t task) {
    const int32_t image = static_cast<int32_t>(task / p.c);
    T* const out = b.grad_input + task * plane;
    C* const partials = p.blocks() > 1 ? scratch.partials + task * plane : nullptr;
    if constexpr (std::is_same_v<T, C>) {
      sum_plane(p, b, scratch, image, task % p.c, out, partials);
    } else {
      C* const totals = scratch.totals + task * plane;
      sum_plane(p, b, scratch, image, task % p.c, totals, partials);
      narrow_row<T>(totals, out, plane);
    }
  });
  return Status::kOk;
}

template <typename T>
struct BinsPath {
  static const char* name() { return "bins"; }
  const Request<Problem, ForwardBuffers<T>>& call;
  Status enqueue() const { return pool_all(call.p, call.b); }
};

template <typename T>
Status run(const Problem& p, const ForwardBuffers<T>& b, void* workspace) {
  return Paths<BinsPath<T>>::enqueue(Request<Problem, ForwardBuffers<T>>{p, b, workspace});
}

template <typename T>
size_t bytes_of(const Problem&, const ForwardBuffers<T>*) {
  return 0;
}

template <typename T>
struct ZerosPath {
  static const char* name() { return "zeros"; }
  const Request<Problem, BackwardBuffers<T>>& call;
  bool can() const { return call.p.input_numel == 0 || call.p.output_numel == 0; }
  size_t bytes() const { return 0; }
  Status enqueue() const { return write_zeros(call.b.grad_input, call.p.input_numel); }
};

template <typename T>
struct PlanesPath {
  static const char* name() { return "planes"; }
  const Request<Problem, BackwardBuffers<T>>& call;
  size_t bytes() const { return BackwardScratch<T>(call.p, nullptr).layout.bytes(); }
  Status enqueue() const { return sum_all(call.p, call.b, call.workspace); }
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

}  // namespace baracuda::roi_pool
