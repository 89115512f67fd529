// SPDX-License-Identifier: Apache-2.0
// roi_align_3d on the CPU. Weights are tabulated once per box; then threads own what they write. Compiled once per
// instruction set.
//
//   forward path    calls                a thread owns
//   zeros           empty volumes        elements
//   lines           all                  the bins of a box and a channel
//
//   backward path   calls                a thread owns
//   zeros           no boxes or bins     elements
//   tiles           all                  a tile of voxels for a block of channels
#include "core/cpu_launch.h"
#include "core/cpu_parallel.h"
#include "core/cpu_zeros.h"
#include "core/integer_math.h"
#include "core/paths.h"
#include "core/workspace.h"
#include "ops/roi_align/cpu_tables.h"
#include "ops/roi_align_3d/launch.h"
#include "ops/roi_align_3d/tables.h"

namespace baracuda::roi_align_3d {
namespace {

template <typename C>
BoxTables<C> tabulate(const Problem& p, const C* rois, void* workspace) {
  const BoxTables<C> tables(p, workspace);
  const int64_t work = tables.capacity[0] + tables.capacity[1] + tables.capacity[2];
  parallel_for(p.num_rois, grain_for(8 * work), [&](int64_t r) {
    const Box<C> box = make_box(rois + kRowNumbers * r, p);
    tables.boxes[r] = box;
    if (box.image < 0) return;
    for (int a = 0; a < kAxes; ++a) {
      tables.touched[kAxes * r + a] = roi_align::tabulate_axis(box.axes[a], p.pooled[a], tables.bins_of(r, a),
                                                               tables.weights_of(r, a), tables.capacity[a]);
    }
  });
  return tables;
}

// Columns and bins of a line that are in registers and L1 at one time.
constexpr int32_t kColumns = 64;
constexpr int32_t kLineBins = 32;

// A box's axes with their tables.
template <typename C>
struct BoxAxes {
  TabulatedAxis<C> z, y, x;
};

// The sums of columns [first, first + count) over the rows and planes of bins (pd, ph): rows ascending inside, planes
// ascending outside.
template <typename T>
void sum_columns(const Problem& p, const T* volume, const BoxAxes<Compute<T>>& box, int32_t pd, int32_t ph,
                 int32_t first, int32_t count, Compute<T>* column_sums) {
  using C = Compute<T>;
  const PixelRange planes = box.z.pixels(pd), rows = box.y.pixels(ph);
  for (int32_t k = 0; k < count; ++k) column_sums[k] = C(0);
  for (int32_t plane = planes.first; plane <= planes.last; ++plane) {
    const C plane_weight = box.z.weight(pd, plane);
    if (plane_weight == C(0)) continue;
    C row_sums[kColumns];
    for (int32_t k = 0; k < count; ++k) row_sums[k] = C(0);
    for (int32_t row = rows.first; row <= rows.last; ++row) {
      const C weight = box.y.weight(ph, row);
      if (weight == C(0)) continue;
      const T* voxels = volume + (int64_t{plane} * p.extents[1] + row) * p.extents[2] + first;
      for (int32_t k = 0; k < count; ++k) row_sums[k] = fma(weight, widen(voxels[k]), row_sums[k]);
    }
    for (int32_t k = 0; k < count; ++k) column_sums[k] = fma(plane_weight, row_sums[k], column_sums[k]);
  }
}

// Bins [pw, pw + bins) of a line: the columns that they touch in parts, each part's columns ascending into every bin.
template <typename T>
void pool_line(const Problem& p, const T* volume, const BoxAxes<Compute<T>>& box, int32_t pd, int32_t ph, int32_t pw,
               int32_t bins, T* output) {
  using C = Compute<T>;
  C sums[kLineBins] = {};
  PixelRange columns = roi_align::no_pixels();
  for (int32_t bin = 0; bin < bins; ++bin) columns = roi_align::join(columns, box.x.pixels(pw + bin));
  for (int32_t left = columns.count(); left > 0; left -= kColumns) {
    const int32_t first = columns.last - (left - 1), count = left < kColumns ? left : kColumns;
    C column_sums[kColumns];
    sum_columns(p, volume, box, pd, ph, first, count, column_sums);
    for (int32_t bin = 0; bin < bins; ++bin) {
      const PixelRange own = box.x.pixels(pw + bin);
      const int32_t begin = own.first > first ? own.first : first;
      const int32_t last = own.last < first + count - 1 ? own.last : first + count - 1;
      for (int32_t column = begin; column <= last; ++column) {
        const C weight = box.x.weight(pw + bin, column);
        if (weight != C(0)) sums[bin] = fma(weight, column_sums[column - first], sums[bin]);
      }
    }
  }
  for (int32_t bin = 0; bin < bins; ++bin) output[bin] = narrow<T>(sums[bin]);
}

template <typename T>
Status pool_all(const Problem& p, const ForwardBuffers<T>& b, void* workspace) {
  using C = Compute<T>;
  const int64_t bins = p.bins(), voxels = p.voxels();
  const BoxTables<C> tables = tabulate(p, b.rois, workspace);
  parallel_for(int64_t{p.num_rois} * p.c, grain_for(64 * bins), [&](int64_t task) {
    const int64_t r = task / p.c, channel = task % p.c;
    T* output = b.output + task * bins;
    const int32_t image = tables.boxes[r].image;
    if (image < 0) {
      for (int64_t i = 0; i < bins; ++i) output[i] = narrow<T>(C(0));
      return;
    }
    const BoxAxes<C> box{tables.axis(r, 0), tables.axis(r, 1), tables.axis(r, 2)};
    const T* volume = b.input + (int64_t{image} * p.c + channel) * voxels;
    for (int32_t pd = 0; pd < p.pooled[0]; ++pd) {
      for (int32_t ph = 0; ph < p.pooled[1]; ++ph) {
        for (int32_t left = p.pooled[2]; left > 0; left -= kLineBins) {
          const int32_t pw = p.pooled[2] - left, count = left < kLineBins ? left : kLineBins;
          pool_line(p, volume, box, pd, ph, pw, count, output + (int64_t{pd} * p.pooled[1] + ph) * p.pooled[2] + pw);
        }
      }
    }
  });
  return Status::kOk;
}

// The backward's owner: a tile of voxels for a block of channels, one lane a channel, so that every weight is a scalar
// and a weight of 0 costs a branch, not a mask.
constexpr int32_t kTile[kAxes] = {2, 8, 32};
constexpr int32_t kLanes = 16;

template <typename C>
struct Tile {
  C sums[kTile[0]][kTile[1]][kTile[2]][kLanes];

  // Calls visit(sums of a voxel) for the first voxels of every axis.
  template <class Visit>
  void each(const int32_t (&count)[kAxes], const Visit& visit) {
    for (int32_t i = 0; i < count[0]; ++i) {
      for (int32_t j = 0; j < count[1]; ++j) {
        for (int32_t k = 0; k < count[2]; ++k) visit(i, j, k, sums[i][j][k]);
      }
    }
  }
};

// What a tile's owner holds: 64 KiB, of f64 128.
template <typename C>
struct TileArrays {
  alignas(64) Tile<C> partial;
  alignas(64) Tile<C> total;
};

// Where a tile lies.
struct TilePlace {
  int32_t image;
  int32_t channel, channels;
  int32_t first[kAxes], count[kAxes];
};

// What of a bin's pixels lies in a tile, counted from the tile's first.
inline PixelRange within(PixelRange pixels, const TilePlace& place, int a) {
  const int32_t first = pixels.first - place.first[a], last = pixels.last - place.first[a];
  return {first > 0 ? first : 0, last < place.count[a] - 1 ? last : place.count[a] - 1};
}

// Adds one box to a tile. Of every pw first what its bins give each row and plane of the tile, then that to the row's
// voxels. A row or a plane that no bin meets adds 0, which changes no bits of a total.
template <typename T>
void add_box(const Problem& p, const T* grad_bins, const BoxAxes<Compute<T>>& box, const TilePlace& place,
             Tile<Compute<T>>& __restrict__ tile) {
  using C = Compute<T>;
  const int64_t bins = p.bins();
  for (int32_t pw = 0; pw < p.pooled[2]; ++pw) {
    const PixelRange columns = within(box.x.pixels(pw), place, 2);
    if (columns.first > columns.last) continue;
    C plane_sums[kTile[0]][kTile[1]][kLanes] = {};
    for (int32_t pd = 0; pd < p.pooled[0]; ++pd) {
      const PixelRange planes = within(box.z.pixels(pd), place, 0);
      if (planes.first > planes.last) continue;
      C row_sums[kTile[1]][kLanes] = {};
      for (int32_t ph = 0; ph < p.pooled[1]; ++ph) {
        const PixelRange rows = within(box.y.pixels(ph), place, 1);
        if (rows.first > rows.last) continue;
        const T* from = grad_bins + (int64_t{pd} * p.pooled[1] + ph) * p.pooled[2] + pw;
        C grad[kLanes] = {};
        for (int32_t k = 0; k < place.channels; ++k) grad[k] = widen(from[k * bins]);
        for (int32_t row = rows.first; row <= rows.last; ++row) {
          const C weight = box.y.weight(ph, place.first[1] + row);
          if (weight == C(0)) continue;
          for (int32_t k = 0; k < kLanes; ++k) row_sums[row][k] = fma(weight, grad[k], row_sums[row][k]);
        }
      }
      for (int32_t plane = planes.first; plane <= planes.last; ++plane) {
        const C weight = box.z.weight(pd, place.first[0] + plane);
        if (weight == C(0)) continue;
        for (int32_t row = 0; row < place.count[1]; ++row) {
          C* const sums = plane_sums[plane][row];
          for (int32_t k = 0; k < kLanes; ++k) sums[k] = fma(weight, row_sums[row][k], sums[k]);
        }
      }
    }
    for (int32_t column = columns.first; column <= columns.last; ++column) {
      const C weight = box.x.weight(pw, place.first[2] + column);
      if (weight == C(0)) continue;
      for (int32_t plane = 0; plane < place.count[0]; ++plane) {
        for (int32_t row = 0; row < place.count[1]; ++row) {
          C* const sums = tile.sums[plane][row][column];
          for (int32_t k = 0; k < kLanes; ++k) sums[k] = fma(weight, plane_sums[plane][row][k], sums[k]);
        }
      }
    }
  }
}

// The backward's workspace behind the tables, for a problem in which there is something to read and to write.
template <typename C>
struct BackwardScratch {
  WorkspaceLayout layout;
  int32_t* begins;  // [n + 1]: where each image's boxes begin in `boxes`
  int32_t* boxes;   // [num_rois]: ascending within an image; boxes of no image are left out
  TaskScratch<TileArrays<C>> arrays;

  BackwardScratch(const Problem& p, void* workspace)
      : begins(workspace_array<int32_t>(workspace, layout.reserve<int32_t>(int64_t{p.n} + 1))),
        boxes(workspace_array<int32_t>(workspace, layout.reserve<int32_t>(p.num_rois))),
        arrays(layout, workspace) {}

  // A counting sort.
  void sort(const Problem& p, const BoxTables<C>& tables) const {
    for (int64_t image = 0; image <= p.n; ++image) begins[image] = 0;
    for (int64_t r = 0; r < p.num_rois; ++r) {
      if (tables.boxes[r].image >= 0) ++begins[tables.boxes[r].image];
    }
    for (int64_t image = 1; image <= p.n; ++image) begins[image] += begins[image - 1];
    // From the last box to the first, so that what were ends become begins.
    for (int64_t r = p.num_rois - 1; r >= 0; --r) {
      if (tables.boxes[r].image >= 0) boxes[--begins[tables.boxes[r].image]] = static_cast<int32_t>(r);
    }
  }
};

template <typename T>
void sum_tile(const Problem& p, const BackwardBuffers<T>& b, const BoxTables<Compute<T>>& tables,
              const BackwardScratch<Compute<T>>& scratch, const TilePlace& place, TileArrays<Compute<T>>& arrays) {
  using C = Compute<T>;
  const auto clear = [&](Tile<C>& tile) {
    tile.each(place.count, [](int32_t, int32_t, int32_t, C(&sums)[kLanes]) {
      for (int32_t lane = 0; lane < kLanes; ++lane) sums[lane] = C(0);
    });
  };
  const auto add_partial = [&] {
    arrays.total.each(place.count, [&](int32_t i, int32_t j, int32_t k, C(&sums)[kLanes]) {
      for (int32_t lane = 0; lane < kLanes; ++lane) sums[lane] = sums[lane] + arrays.partial.sums[i][j][k][lane];
    });
  };
  clear(arrays.total);
  int64_t end = 0;  // of the block of boxes whose sum is `partial`; a block without boxes of this tile has none
  for (int32_t at = scratch.begins[place.image]; at < scratch.begins[place.image + 1]; ++at) {
    const int64_t r = scratch.boxes[at];
    if (!tables.touches(r, place.image, place.first, place.count)) continue;
    if (r >= end) {
      if (end > 0) add_partial();
      clear(arrays.partial);
      end = (r / p.rois_per_block + 1) * p.rois_per_block;
    }
    const BoxAxes<C> box{tables.axis(r, 0), tables.axis(r, 1), tables.axis(r, 2)};
    add_box(p, b.grad_output + (r * p.c + place.channel) * p.bins(), box, place, arrays.partial);
  }
  if (end > 0) add_partial();
}

// Rounds a tile's sums to T and writes them.
template <typename T>
void write_tile(const Problem& p, const TilePlace& place, const Tile<Compute<T>>& __restrict__ total,
                T* __restrict__ grad_input) {
  const int64_t first_volume = int64_t{place.image} * p.c + place.channel;
  for (int32_t lane = 0; lane < place.channels; ++lane) {
    for (int32_t i = 0; i < place.count[0]; ++i) {
      for (int32_t j = 0; j < place.count[1]; ++j) {
        const int64_t row = ((first_volume + lane) * p.extents[0] + place.first[0] + i) * p.extents[1] +
                            place.first[1] + j;
        T* __restrict__ to = grad_input + row * p.extents[2] + place.first[2];
        for (int32_t k = 0; k < place.count[2]; ++k) to[k] = narrow<T>(total.sums[i][j][k][lane]);
      }
    }
  }
}

template <typename T>
Status sum_all(const Problem& p, const BackwardBuffers<T>& b, void* workspace) {
  using C = Compute<T>;
  const BoxTables<C> tables = tabulate(p, b.rois, workspace);
  const BackwardScratch<C> scratch(p, workspace_array<char>(workspace, tables.bytes));
  scratch.sort(p, tables);
  int64_t tiles[kAxes];
  for (int a = 0; a < kAxes; ++a) tiles[a] = ceil_div(p.extents[a], kTile[a]);
  const int64_t channel_blocks = ceil_div(p.c, kLanes);
  parallel_for(p.n * channel_blocks * tiles[0] * tiles[1] * tiles[2], 1, [&](int64_t task) {
    TilePlace place;
    int64_t rest = task;
    for (int a = kAxes - 1; a >= 0; --a) {
      place.first[a] = static_cast<int32_t>(rest % tiles[a]) * kTile[a];
      place.count[a] = p.extents[a] - place.first[a] < kTile[a] ? p.extents[a] - place.first[a] : kTile[a];
      rest /= tiles[a];
    }
    place.channel = static_cast<int32_t>(rest % channel_blocks) * kLanes;
    place.channels = p.c - place.channel < kLanes ? p.c - place.channel : kLanes;
    place.image = static_cast<int32_t>(rest / channel_blocks);
    TileArrays<C>& arrays = scratch.arrays.mine();
    sum_tile(p, b, tables, scratch, place, arrays);
    write_tile(p, place, arrays.total, b.grad_input);
  });
  return Status::kOk;
}

template <typename T>
struct ForwardZerosPath {
  static const char* name() { return "zeros"; }
  const Request<Problem, ForwardBuffers<T>>& call;
  bool can() const { return call.p.input_numel == 0; }
  Status enqueue() const { return write_zeros(call.b.output, call.p.output_numel); }
};

template <typename T>
struct LinesPath {
  static const char* name() { return "lines"; }
  const Request<Problem, ForwardBuffers<T>>& call;
  Status enqueue() const { return pool_all(call.p, call.b, call.workspace); }
};

template <typename T>
Status run(const Problem& p, const ForwardBuffers<T>& b, void* workspace) {
  return Paths<ForwardZerosPath<T>, LinesPath<T>>::enqueue(Request<Problem, ForwardBuffers<T>>{p, b, workspace});
}

template <typename T>
size_t bytes_of(const Problem& p, const ForwardBuffers<T>*) {
  return BoxTables<Compute<T>>(p, nullptr).bytes;
}

template <typename T>
struct BackwardZerosPath {
  static const char* name() { return "zeros"; }
  const Request<Problem, BackwardBuffers<T>>& call;
  bool can() const { return call.p.input_numel == 0 || call.p.output_numel == 0; }
  size_t bytes() const { return 0; }
  Status enqueue() const { return write_zeros(call.b.grad_input, call.p.input_numel); }
};

template <typename T>
struct TilesPath {
  static const char* name() { return "tiles"; }
  const Request<Problem, BackwardBuffers<T>>& call;
  size_t bytes() const { return BackwardScratch<Compute<T>>(call.p, nullptr).layout.bytes(); }
  Status enqueue() const { return sum_all(call.p, call.b, call.workspace); }
};

template <typename T>
using BackwardPaths = Paths<BackwardZerosPath<T>, TilesPath<T>>;

template <typename T>
Status run(const Problem& p, const BackwardBuffers<T>& b, void* workspace) {
  return BackwardPaths<T>::enqueue(Request<Problem, BackwardBuffers<T>>{p, b, workspace});
}

template <typename T>
size_t bytes_of(const Problem& p, const BackwardBuffers<T>*) {
  const BackwardBuffers<T> none{};
  const size_t behind_tables = BackwardPaths<T>::choose(Request<Problem, BackwardBuffers<T>>{p, none, nullptr},
                                                        [](const auto& path) { return path.bytes(); });
  return BoxTables<Compute<T>>(p, nullptr).bytes + behind_tables;
}

}  // namespace

BARACUDA_FLOAT_TYPES(BARACUDA_PROVIDE_BOTH_DIRECTIONS)

}  // namespace baracuda::roi_align_3d
