// SPDX-License-Identifier: Apache-2.0
// roi_align on the CPU. Weights are tabulated once per box; then threads own what they write. Compiled once per
// instruction set.
//
//   forward path    calls                a thread owns
//   zeros           empty images         elements
//   bins            all                  the bins of a box and a channel
//
//   levels          several maps         as those two, a map at a time
//
//   backward path   calls                a thread owns
//   zeros           no boxes or bins     elements
//   tiles           all                  a tile of pixels for a block of channels
//   levels          several maps         as those two, a map at a time
//
//   boxes           their gradient       the gradient of a box
#include "core/checked.h"
#include "core/cpu_launch.h"
#include "core/cpu_parallel.h"
#include "core/cpu_zeros.h"
#include "core/integer_math.h"
#include "core/paths.h"
#include "core/workspace.h"
#include "ops/roi_align/cpu_tables.h"
#include "ops/roi_align/launch.h"
#include "ops/roi_align/slopes.h"

namespace baracuda::roi_align {
namespace {

// Fills the tables of every box, as `make` makes it of its row.
template <typename T, class Make>
BoxTables<T> tabulate(const Problem& p, const T* rois, void* workspace, const Make& make) {
  const BoxTables<T> tables(p, workspace);
  parallel_for(p.num_rois, grain_for(8 * (tables.y_capacity + tables.x_capacity)), [&](int64_t r) {
    const Box<T> box = make(rois + 5 * r);
    tables.boxes[r] = box;
    if (box.image < 0) return;
    tables.touched[2 * r] = tabulate_axis(box.y, p.pooled_h, tables.y_bins + r * p.pooled_h,
                                          tables.y_weights + r * tables.y_capacity, tables.y_capacity);
    tables.touched[2 * r + 1] = tabulate_axis(box.x, p.pooled_w, tables.x_bins + r * p.pooled_w,
                                              tables.x_weights + r * tables.x_capacity, tables.x_capacity);
  });
  return tables;
}

// Columns that one pass over a bin's rows keeps in registers and L1.
constexpr int32_t kColumns = 64;

// One bin of one channel: rows ascending inside a column, then columns ascending.
template <typename T>
Compute<T> pool_bin(const T* plane, int64_t row_stride, const TabulatedAxis<Compute<T>>& y, int32_t ph,
                    const TabulatedAxis<Compute<T>>& x, int32_t pw) {
  using C = Compute<T>;
  const PixelRange rows = y.pixels(ph), columns = x.pixels(pw);
  C sum = C(0);
  for (int32_t left = columns.count(); left > 0; left -= kColumns) {
    const int32_t first = columns.last - (left - 1), count = left < kColumns ? left : kColumns;
    C column_sums[kColumns];
    for (int32_t k = 0; k < count; ++k) column_sums[k] = C(0);
    for (int32_t row = rows.first; row <= rows.last; ++row) {
      const C weight = y.weight(ph, row);
      if (weight == C(0)) continue;
      const T* pixels = plane + row * row_stride + first;
      for (int32_t k = 0; k < count; ++k) column_sums[k] = fma(weight, widen(pixels[k]), column_sums[k]);
    }
    for (int32_t k = 0; k < count; ++k) {
      const C weight = x.weight(pw, first + k);
      if (weight != C(0)) sum = fma(weight, column_sums[k], sum);
    }
  }
  return sum;
}

// Boxes of another map have their bins written there.
template <typename T, class Make>
Status pool_all(const Problem& p, const ForwardBuffers<T>& b, void* workspace, const Make& make) {
  using C = Compute<T>;
  const int64_t bins = static_cast<int64_t>(p.pooled_h) * p.pooled_w;
  const int64_t plane = static_cast<int64_t>(p.h) * p.w;
  const BoxTables<C> boxes = tabulate(p, b.rois, workspace, make);
  parallel_for(static_cast<int64_t>(p.num_rois) * p.c, grain_for(16 * bins), [&](int64_t task) {
    const int64_t r = task / p.c, channel = task % p.c;
    T* output = b.output + task * bins;
    const int32_t image = boxes.boxes[r].image;
    if (image == kOfOtherLevel) return;
    if (image < 0) {
      for (int64_t i = 0; i < bins; ++i) output[i] = narrow<T>(C(0));
      return;
    }
    const TabulatedAxis<C> y = boxes.y(r), x = boxes.x(r);
    const T* pixels = b.input + (static_cast<int64_t>(image) * p.c + channel) * plane;
    for (int32_t ph = 0; ph < p.pooled_h; ++ph) {
      for (int32_t pw = 0; pw < p.pooled_w; ++pw) {
        output[static_cast<int64_t>(ph) * p.pooled_w + pw] = narrow<T>(pool_bin(pixels, p.w, y, ph, x, pw));
      }
    }
  });
  return Status::kOk;
}

// The backward's owner: a tile of pixels for a block of channels, one lane a channel, so that every weight is a scalar
// and a weight of 0 costs a branch, not a mask.
constexpr int32_t kTileRows = 8;
constexpr int32_t kTileColumns = 64;
constexpr int32_t kLanes = 16;

template <typename C>
struct Tile {
  C sums[kTileRows][kTileColumns][kLanes];

  void clear(int32_t rows, int32_t columns) {
    for (int32_t row = 0; row < rows; ++row) {
      for (int32_t column = 0; column < columns; ++column) {
        for (int32_t k = 0; k < kLanes; ++k) sums[row][column][k] = C(0);
      }
    }
  }
  void add(const Tile& __restrict__ other, int32_t rows, int32_t columns) {
    for (int32_t row = 0; row < rows; ++row) {
      for (int32_t column = 0; column < columns; ++column) {
        for (int32_t k = 0; k < kLanes; ++k) sums[row][column][k] = sums[row][column][k] + other.sums[row][column][k];
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
  int32_t row, rows;
  int32_t column, columns;
};

// Adds one box to a tile: for each row the sums over ph (ascending) of every pw, then pw ascending into the row's
// pixels.
template <typename T>
void add_box(const Problem& p, const T* grad_bins, const TabulatedAxis<Compute<T>>& y,
             const TabulatedAxis<Compute<T>>& x, const TilePlace& place, Tile<Compute<T>>& __restrict__ tile) {
  using C = Compute<T>;
  const int64_t bins = static_cast<int64_t>(p.pooled_h) * p.pooled_w;
  for (int32_t i = 0; i < place.rows; ++i) {
    const int32_t row = place.row + i;
    for (int32_t pw = 0; pw < p.pooled_w; ++pw) {
      const PixelRange columns = x.pixels(pw);
      const int32_t first = columns.first > place.column ? columns.first : place.column;
      const int32_t end = columns.last < place.column + place.columns - 1 ? columns.last
                                                                          : place.column + place.columns - 1;
      if (first > end) continue;
      C row_sums[kLanes] = {};
      bool touched = false;
      for (int32_t ph = 0; ph < p.pooled_h; ++ph) {
        if (!y.pixels(ph).has(row)) continue;
        const C weight = y.weight(ph, row);
        if (weight == C(0)) continue;
        touched = true;
        const T* grad = grad_bins + static_cast<int64_t>(ph) * p.pooled_w + pw;
        for (int32_t k = 0; k < place.channels; ++k) row_sums[k] = fma(weight, widen(grad[k * bins]), row_sums[k]);
      }
      if (!touched) break;  // the row is outside this box, whatever pw
      for (int32_t column = first; column <= end; ++column) {
        const C weight = x.weight(pw, column);
        if (weight == C(0)) continue;
        C* sums = tile.sums[i][column - place.column];
        for (int32_t k = 0; k < kLanes; ++k) sums[k] = fma(weight, row_sums[k], sums[k]);
      }
    }
  }
}

// The boxes of each image, ascending, so that a tile's owner looks at no other image's.
struct ImageBoxes {
  int32_t* begins;  // [image + 1]
  int32_t* boxes;   // [num_rois]

  ImageBoxes(const Problem& p, WorkspaceLayout& layout, void* workspace) {
    begins = workspace_array<int32_t>(workspace, layout.reserve<int32_t>(int64_t{p.n} + 1));
    boxes = workspace_array<int32_t>(workspace, layout.reserve<int32_t>(p.num_rois));
  }

  // A counting sort; boxes of no image are left out.
  template <typename T>
  void fill(const Problem& p, const BoxTables<T>& tables) const {
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

// The backward's workspace behind the tables, for a problem in which there is something to read and to write.
template <typename C>
struct BackwardScratch {
  WorkspaceLayout layout;
  ImageBoxes of_images;
  TaskScratch<TileArrays<C>> arrays;

  BackwardScratch(const Problem& p, void* workspace) : of_images(p, layout, workspace), arrays(layout, workspace) {}
};

template <typename T>
void sum_tile(const Problem& p, const BackwardBuffers<T>& b, const BoxTables<Compute<T>>& tables,
              const ImageBoxes& of_images, const TilePlace& place, Tile<Compute<T>>& __restrict__ partial,
              Tile<Compute<T>>& __restrict__ total) {
  const int64_t bins = static_cast<int64_t>(p.pooled_h) * p.pooled_w;
  total.clear(place.rows, place.columns);
  int64_t end = 0;  // of the block of boxes whose sum is `partial`; a block without boxes of this tile has none
  for (int32_t k = of_images.begins[place.image]; k < of_images.begins[place.image + 1]; ++k) {
    const int64_t r = of_images.boxes[k];
    if (!tables.touches(r, place.image, place.row, place.rows, place.column, place.columns)) continue;
    if (r >= end) {
      if (end > 0) total.add(partial, place.rows, place.columns);
      partial.clear(place.rows, place.columns);
      end = (r / p.rois_per_block + 1) * p.rois_per_block;
    }
    add_box(p, b.grad_output + (r * p.c + place.channel) * bins, tables.y(r), tables.x(r), place, partial);
  }
  if (end > 0) total.add(partial, place.rows, place.columns);
}

// Rounds a tile's sums to T and writes them to its planes, of which `planes` is the first.
template <typename T>
void write_tile(const Problem& p, const TilePlace& place, const Tile<Compute<T>>& __restrict__ total,
                T* __restrict__ planes) {
  const int64_t plane = static_cast<int64_t>(p.h) * p.w;
  for (int32_t k = 0; k < place.channels; ++k) {
    for (int32_t i = 0; i < place.rows; ++i) {
      T* __restrict__ pixels = planes + k * plane + static_cast<int64_t>(place.row + i) * p.w + place.column;
      for (int32_t j = 0; j < place.columns; ++j) pixels[j] = narrow<T>(total.sums[i][j][k]);
    }
  }
}

template <typename T, class Make>
Status sum_all(const Problem& p, const BackwardBuffers<T>& b, void* workspace, const Make& make) {
  using C = Compute<T>;
  const BoxTables<C> tables = tabulate(p, b.rois, workspace, make);
  const BackwardScratch<C> scratch(p, workspace_array<char>(workspace, tables.bytes));
  scratch.of_images.fill(p, tables);
  const int64_t plane = static_cast<int64_t>(p.h) * p.w;
  const int64_t row_tiles = ceil_div(p.h, kTileRows);
  const int64_t column_tiles = ceil_div(p.w, kTileColumns);
  const int64_t channel_blocks = ceil_div(p.c, kLanes);
  parallel_for(p.n * channel_blocks * row_tiles * column_tiles, 1, [&](int64_t task) {
    TilePlace place;
    place.column = static_cast<int32_t>(task % column_tiles) * kTileColumns;
    place.row = static_cast<int32_t>(task / column_tiles % row_tiles) * kTileRows;
    place.channel = static_cast<int32_t>(task / column_tiles / row_tiles % channel_blocks) * kLanes;
    place.image = static_cast<int32_t>(task / column_tiles / row_tiles / channel_blocks);
    place.columns = p.w - place.column < kTileColumns ? p.w - place.column : kTileColumns;
    place.rows = p.h - place.row < kTileRows ? p.h - place.row : kTileRows;
    place.channels = p.c - place.channel < kLanes ? p.c - place.channel : kLanes;
    TileArrays<C>& arrays = scratch.arrays.mine();
    sum_tile(p, b, tables, scratch.of_images, place, arrays.partial, arrays.total);
    const int64_t first_plane = static_cast<int64_t>(place.image) * p.c + place.channel;
    write_tile(p, place, arrays.total, b.grad_input + first_plane * plane);
  });
  return Status::kOk;
}

// How a box is made of its row where there is one map, and for one of several.
template <typename T>
struct BoxOfOneMap {
  const Problem& p;
  Box<Compute<T>> operator()(const Compute<T>* roi) const { return make_box(roi, p); }
};

template <typename T>
struct BoxOfLevel {
  const LevelsProblem& maps;
  int32_t level;
  Box<Compute<T>> operator()(const Compute<T>* roi) const {
    Box<Compute<T>> box = make_box(roi, maps.levels[level]);
    if (!has_area(roi)) box.image = kNoImage;
    if (level_of(roi, maps) != level) box.image = kOfOtherLevel;
    return box;
  }
};

template <typename T>
struct ForwardZerosPath {
  static const char* name() { return "zeros"; }
  const Request<Problem, ForwardBuffers<T>>& call;
  bool can() const { return call.p.input_numel == 0; }
  Status enqueue() const { return write_zeros(call.b.output, call.p.output_numel); }
};

template <typename T>
struct BinsPath {
  static const char* name() { return "bins"; }
  const Request<Problem, ForwardBuffers<T>>& call;
  Status enqueue() const { return pool_all(call.p, call.b, call.workspace, BoxOfOneMap<T>{call.p}); }
};

template <typename T>
Status run(const Problem& p, const ForwardBuffers<T>& b, void* workspace) {
  return Paths<ForwardZerosPath<T>, BinsPath<T>>::enqueue(Request<Problem, ForwardBuffers<T>>{p, b, workspace});
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
  Status enqueue() const { return sum_all(call.p, call.b, call.workspace, BoxOfOneMap<T>{call.p}); }
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

// Zeros for the boxes of a map without pixels.
template <typename T>
void write_zeros_of_level(const BoxOfLevel<T>& make, const LevelsForwardBuffers<T>& b) {
  const Problem& p = make.maps.all;
  const int64_t of_box = static_cast<int64_t>(p.c) * p.pooled_h * p.pooled_w;
  parallel_for(p.num_rois, grain_for(of_box), [&](int64_t r) {
    if (make(b.rois + 5 * r).image == kOfOtherLevel) return;
    for (int64_t i = 0; i < of_box; ++i) b.output[r * of_box + i] = narrow<T>(Compute<T>(0));
  });
}

template <typename T>
struct LevelsForwardPath {
  static const char* name() { return "levels"; }
  const Request<LevelsProblem, LevelsForwardBuffers<T>>& call;
  Status enqueue() const {
    for (int32_t level = 0; level < call.p.num_levels; ++level) {
      const Problem& p = call.p.levels[level];
      const BoxOfLevel<T> make{call.p, level};
      if (p.input_numel == 0) {
        write_zeros_of_level(make, call.b);
        continue;
      }
      const ForwardBuffers<T> own{call.b.inputs[level], call.b.rois, call.b.output};
      BARACUDA_RETURN_IF_FAILED(pool_all(p, own, call.workspace, make));
    }
    return Status::kOk;
  }
};

template <typename T>
struct LevelsBackwardPath {
  static const char* name() { return "levels"; }
  const Request<LevelsProblem, LevelsBackwardBuffers<T>>& call;
  Status enqueue() const {
    for (int32_t level = 0; level < call.p.num_levels; ++level) {
      const Problem& p = call.p.levels[level];
      const BackwardBuffers<T> own{call.b.grad_output, call.b.rois, call.b.grad_inputs[level]};
      if (p.input_numel == 0 || p.output_numel == 0) {
        BARACUDA_RETURN_IF_FAILED(write_zeros(own.grad_input, p.input_numel));
      } else {
        BARACUDA_RETURN_IF_FAILED(sum_all(p, own, call.workspace, BoxOfLevel<T>{call.p, level}));
      }
    }
    return Status::kOk;
  }
};

template <typename T>
Status run(const LevelsProblem& p, const LevelsForwardBuffers<T>& b, void* workspace) {
  using Call = Request<LevelsProblem, LevelsForwardBuffers<T>>;
  return Paths<LevelsForwardPath<T>>::enqueue(Call{p, b, workspace});
}

template <typename T>
Status run(const LevelsProblem& p, const LevelsBackwardBuffers<T>& b, void* workspace) {
  using Call = Request<LevelsProblem, LevelsBackwardBuffers<T>>;
  return Paths<LevelsBackwardPath<T>>::enqueue(Call{p, b, workspace});
}

// What the lanes of a box have summed.
template <typename C>
struct BoxLanes {
  BoxSlopes<C> sums[kChannelLanes][kSampleLanes];
};

// The gradient of a box on some image.
template <typename T>
BoxSlopes<Compute<T>> sum_box(const Problem& p, const BoxesBackwardBuffers<T>& b, int64_t r,
                              const Box<Compute<T>>& box) {
  using C = Compute<T>;
  BoxLanes<C> lanes{};
  const int64_t plane = static_cast<int64_t>(p.h) * p.w, bins = static_cast<int64_t>(p.pooled_h) * p.pooled_w;
  const T* const input = b.input + box.image * p.c * plane;
  const T* const grad_output = b.grad_output + r * p.c * bins;
  SampleSpan rows = no_samples(), columns = no_samples();
  for (int32_t bin = 0; bin < p.pooled_h; ++bin) rows = join(rows, span_of_bin(box.y, bin));
  for (int32_t bin = 0; bin < p.pooled_w; ++bin) columns = join(columns, span_of_bin(box.x, bin));
  const Compute<T>* const roi = b.rois + 5 * r;
  const bool least_y = has_least_length(roi[2], roi[4], p), least_x = has_least_length(roi[1], roi[3], p);
  int64_t number = 0;
  for (int64_t row = rows.first; row < rows.end; ++row) {
    const SampleSlope<C> y(box.y, row, p.pooled_h, least_y);
    for (int64_t column = columns.first; column < columns.end; ++column, ++number) {
      const SampleSlope<C> x(box.x, column, p.pooled_w, least_x);
      const SampleTaps taps(y, x, p.w);
      if (!taps.any) continue;
      const T* const grad = grad_output + static_cast<int64_t>(y.bin) * p.pooled_w + x.bin;
      C of_taps[kChannelLanes][4] = {};
      for (int32_t left = p.c; left > 0; left -= kChannelLanes) {
        const int32_t first = p.c - left, count = left < kChannelLanes ? left : kChannelLanes;
        for (int32_t lane = 0; lane < count; ++lane) {
          taps.add(widen(grad[(first + lane) * bins]), input + (first + lane) * plane, of_taps[lane]);
        }
      }
      for (int32_t lane = 0; lane < kChannelLanes; ++lane) {
        lanes.sums[lane][number % kSampleLanes].add(y, x, of_taps[lane]);
      }
    }
  }
  BoxSlopes<C> total{};
  for (int32_t lane = 0; lane < kChannelLanes; ++lane) {
    for (int32_t half = kSampleLanes / 2; half > 0; half /= 2) {
      for (int32_t i = 0; i < half; ++i) lanes.sums[lane][i].join(lanes.sums[lane][i + half]);
    }
    total.join(lanes.sums[lane][0]);
  }
  return total;
}

template <typename T>
struct BoxesBackwardPath {
  static const char* name() { return "boxes"; }
  const Request<Problem, BoxesBackwardBuffers<T>>& call;
  Status enqueue() const {
    using C = Compute<T>;
    const Problem& p = call.p;
    const int64_t bins = static_cast<int64_t>(p.pooled_h) * p.pooled_w;
    const bool has_work = p.input_numel > 0 && p.output_numel > 0;
    parallel_for(p.num_rois, grain_for(has_work ? 16 * p.c * bins : 1), [&](int64_t r) {
      const Box<C> box = make_box(call.b.rois + 5 * r, p);
      C* const to = call.b.grad_rois + 5 * r;
      if (!has_work || box.image < 0) {
        for (int32_t k = 0; k < 5; ++k) to[k] = C(0);
      } else {
        sum_box(p, call.b, r, box).write(p, box, to);
      }
    });
    return Status::kOk;
  }
};

template <typename T>
Status run(const Problem& p, const BoxesBackwardBuffers<T>& b, void*) {
  return Paths<BoxesBackwardPath<T>>::enqueue(Request<Problem, BoxesBackwardBuffers<T>>{p, b, nullptr});
}

template <typename T>
size_t bytes_of(const Problem&, const BoxesBackwardBuffers<T>*) {
  return 0;
}

// The maps follow one another in the same scratch.
template <class OneMap>
size_t most_bytes(const LevelsProblem& p, const OneMap* none) {
  size_t most = 0;
  for (int32_t level = 0; level < p.num_levels; ++level) {
    const size_t bytes = bytes_of(p.levels[level], none);
    if (bytes > most) most = bytes;
  }
  return most;
}

template <typename T>
size_t bytes_of(const LevelsProblem& p, const LevelsForwardBuffers<T>*) {
  return most_bytes(p, static_cast<const ForwardBuffers<T>*>(nullptr));
}

template <typename T>
size_t bytes_of(const LevelsProblem& p, const LevelsBackwardBuffers<T>*) {
  return most_bytes(p, static_cast<const BackwardBuffers<T>*>(nullptr));
}

}  // namespace

BARACUDA_FLOAT_TYPES(BARACUDA_PROVIDE_BOTH_DIRECTIONS)
BARACUDA_FLOAT_TYPES(BARACUDA_PROVIDE_BOXES_BACKWARD)
BARACUDA_FLOAT_TYPES(BARACUDA_PROVIDE_LEVELS)

}  // namespace baracuda::roi_align
