// SPDX-License-Identifier: Apache-2.0
// The backward's sums on the CPU: the owner of a tile adds its samples, in order, to its pixels, and finishes the
// gradients of the samples that are at home in it. Values lie side by side, one lane a channel, so that a tap of a
// sample or a contribution to a pixel is one vector, wherever it lies.
#pragma once

#include "core/cpu_convert.h"
#include "core/cpu_parallel.h"
#include "ops/grid_sample/cpu/lanes.h"
#include "ops/grid_sample/cpu/tiles.h"
#include "ops/grid_sample/launch.h"
#include "ops/grid_sample/math.h"

namespace baracuda::grid_sample {
namespace {

// The channels [first, first + count), in blocks of kLanes of which the last may be short.
template <int kLanes>
struct Channels {
  int64_t first, count;
  int64_t blocks() const { return ceil_div(count, kLanes); }
  int64_t in_block(int64_t block) const { return at_most(count - block * kLanes, kLanes); }
};

// Samples whose gradients one task lays side by side.
constexpr int64_t kSpan = 256;

// lanes[image][block][sample][lane] = planes[image][block * kLanes + lane][sample]; `planes` is the first channel's of
// the first image.
template <typename T, int kLanes>
void interleave_gradients(const Problem& p, const T* planes, int64_t images, const Channels<kLanes>& channels,
                          Compute<T>* lanes) {
  const int64_t spans = ceil_div(p.samples, kSpan), blocks = channels.blocks();
  parallel_for(images * blocks * spans, grain_for(kSpan * kLanes), [&](int64_t task) {
    const int64_t unit = task / spans, first = task % spans * kSpan;
    const int64_t image = unit / blocks, block = unit % blocks;
    interleave_run<T, kLanes>(planes + (image * p.c + block * kLanes) * p.samples + first, p.samples,
                              at_most(p.samples - first, kSpan), channels.in_block(block),
                              lanes + (unit * p.samples + first) * kLanes);
  });
}

// Where a tile lies in its image.
struct TilePlace {
  int32_t column, row;                // its first pixel
  int32_t columns, rows;              // its pixels
  int32_t patch_columns, patch_rows;  // with the next column and row, if the image has them

  TilePlace(const Problem& p, const Partition& cut, int64_t tile) {
    column = static_cast<int32_t>(tile % cut.tile_columns << cut.width_shift);
    row = static_cast<int32_t>(tile / cut.tile_columns << cut.height_shift);
    columns = static_cast<int32_t>(at_most(p.input_w - column, int64_t{1} << cut.width_shift));
    rows = static_cast<int32_t>(at_most(p.input_h - row, int64_t{1} << cut.height_shift));
    patch_columns = static_cast<int32_t>(at_most(p.input_w - column, columns + int64_t{1}));
    patch_rows = static_cast<int32_t>(at_most(p.input_h - row, rows + int64_t{1}));
  }
};

// The sums of a tile's pixels for one block of channels.
template <typename C, int kLanes>
struct TileSums {
  using Vector = Lanes<C, kLanes>;
  static constexpr int kRow = kTileWidth * kLanes;
  alignas(64) C partials[kTileHeight * kRow];  // a chunk's sum
  alignas(64) C totals[kTileHeight * kRow];    // of the chunks before
  int64_t counts[kTilePixels];                 // contributions; used when a pixel may have more than one chunk

  void clear(const TilePlace& place) {
    for (int32_t row = 0; row < place.rows; ++row) {
      for (int32_t column = 0; column < place.columns; ++column) {
        const int pixel = row * kTileWidth + column;
        Vector::all(C(0)).store(partials + pixel * kLanes);
        counts[pixel] = 0;
      }
    }
  }

  template <bool kCounted>
  inline __attribute__((always_inline)) void add(int pixel, C weight, Vector gradient) {
    if (weight == C(0)) return;
    C* partial = partials + pixel * kLanes;
    if constexpr (kCounted) {
      if (counts[pixel] % kChunk == 0 && counts[pixel] != 0) {
        total(pixel).store(totals + pixel * kLanes);
        Vector::all(C(0)).store(partial);
      }
      ++counts[pixel];
    }
    Vector::load(partial).plus_product(Vector::all(weight), gradient).store(partial);
  }

  // The total with the open chunk.
  Vector total(int pixel) const {
    const Vector before = counts[pixel] > kChunk ? Vector::load(totals + pixel * kLanes) : Vector::all(C(0));
    return before.plus(Vector::load(partials + pixel * kLanes));
  }
};

// Adds a sample's taps that lie in the tile; `x`, `y` is its first tap's place in the tile.
template <bool kCounted, typename C, int kLanes>
inline __attribute__((always_inline)) void add_sample(const TilePlace& place, int32_t x, int32_t y, C x1, C y1,
                                                      const C* gradient, TileSums<C, kLanes>& sums) {
  const C x0 = C(1) - x1, y0 = C(1) - y1;
  const bool left = x >= 0, right = x + 1 < place.columns;
  const auto values = Lanes<C, kLanes>::load(gradient);
  const int pixel = y * kTileWidth + x;
  if (y >= 0) {
    if (left) sums.template add<kCounted>(pixel, y0 * x0, values);
    if (right) sums.template add<kCounted>(pixel + 1, y0 * x1, values);
  }
  if (y + 1 < place.rows) {
    if (left) sums.template add<kCounted>(pixel + kTileWidth, y1 * x0, values);
    if (right) sums.template add<kCounted>(pixel + kTileWidth + 1, y1 * x1, values);
  }
}

// Rounds a tile's sums to T and writes them to `channels` planes of the image.
template <typename T, int kLanes>
void write_sums(const Problem& p, const TilePlace& place, const TileSums<Compute<T>, kLanes>& sums, int64_t channels,
                T* planes) {
  using C = Compute<T>;
  for (int32_t row = 0; row < place.rows; ++row) {
    for (int32_t column = 0; column < place.columns; column += kSquare) {
      const int64_t count = at_most(place.columns - column, kSquare);
      T* to = planes + (static_cast<int64_t>(place.row) + row) * p.input_w + place.column + column;
      C square[kSquare][kLanes] = {};
      for (int k = 0; k < count; ++k) sums.total(row * kTileWidth + column + k).clean().store(square[k]);
      if constexpr (sizeof(T) == sizeof(C)) {
        if (channels == kLanes) {
          separate<kLanes>(square[0], count, to, p.pixels);
          continue;
        }
      }
      C lanes[kLanes][kSquare] = {};
      separate<kLanes>(square[0], count, lanes[0], kSquare);
      for (int64_t k = 0; k < channels; ++k) narrow_row(lanes[k], to + k * p.pixels, count);
    }
  }
}

// A tile's input with the next column and row, one block of channels.
template <typename C, int kLanes>
struct Patch {
  static constexpr int kRow = (kTileWidth + 1) * kLanes;
  alignas(64) C values[(kTileHeight + 1) * kRow];
};

// Samples that are fetched ahead: 16 take some 300 ns.
constexpr int64_t kFetchedSamples = 16;

// Rows that are fetched ahead. The hardware does not foresee short runs in many planes; one row's arithmetic hides some
// half of a line's way from the last-level cache.
constexpr int32_t kFetchedRows = 2;

// Fetches `columns` elements of `channels` planes into the cache, for reading or for writing.
template <bool kWrite, typename T>
inline void fetch_row(const T* planes, int64_t stride, int64_t columns, int64_t channels) {
  constexpr int64_t kLine = 64 / static_cast<int64_t>(sizeof(T));
  for (int64_t k = 0; k < channels; ++k) {
    for (int64_t i = 0; i < columns; i += kLine) __builtin_prefetch(planes + k * stride + i, kWrite, 2);
    __builtin_prefetch(planes + k * stride + columns - 1, kWrite, 2);
  }
}

// Lays a tile's input side by side. Its output goes to the same places of other planes and is fetched on the way.
template <typename T, int kLanes>
inline void load_patch(const Problem& p, const TilePlace& place, const T* input, const T* grad_input, int64_t channels,
                       Patch<Compute<T>, kLanes>& patch) {
  const int64_t first = static_cast<int64_t>(place.row) * p.input_w + place.column;
  for (int32_t row = -kFetchedRows; row < place.patch_rows; ++row) {
    const int64_t ahead = first + (static_cast<int64_t>(row) + kFetchedRows) * p.input_w;
    if (row + kFetchedRows < place.patch_rows) fetch_row<false>(input + ahead, p.pixels, place.patch_columns, channels);
    if (row + kFetchedRows < place.rows) fetch_row<true>(grad_input + ahead, p.pixels, place.columns, channels);
    if (row < 0) continue;
    interleave_run<T, kLanes>(input + first + static_cast<int64_t>(row) * p.input_w, p.pixels, place.patch_columns,
                              channels, patch.values + row * Patch<Compute<T>, kLanes>::kRow);
  }
}

// Samples at home in a tile whose gradients are finished together, side by side.
template <typename C, int kLanes>
struct Batch {
  static constexpr int kSize = 64;
  int count;
  bool x_exists[kSize], y_exists[kSize];  // whether the derivative has a tap
  int64_t samples[kSize];
  alignas(64) C slopes[2][kSize][kLanes];
  alignas(64) C gradients[kSize][kLanes];
};

// Appends the derivatives of one sample's values by its position. `x`, `y` is its first tap's place in the tile.
template <typename C, int kLanes>
inline __attribute__((always_inline)) void append(const Problem& p, const Position<C>& at, int32_t x, int32_t y,
                                                  const Patch<C, kLanes>& patch, Batch<C, kLanes>& batch) {
  using Vector = Lanes<C, kLanes>;
  constexpr int kBelow = Patch<C, kLanes>::kRow;
  const C* first = patch.values + (y * kBelow + x * kLanes);
  const C x1 = at.x.fraction, x0 = C(1) - x1, y1 = at.y.fraction, y0 = C(1) - y1;
  const bool inside = at.x.low >= 0 && at.x.low < p.input_w - 1 && at.y.low >= 0 && at.y.low < p.input_h - 1;
  Vector x_sum = Vector::all(C(0)), y_sum = x_sum;
  bool x_exists = true, y_exists = true;
  if (inside && x0 != C(0) && x1 != C(0) && y0 != C(0) && y1 != C(0)) {
    const Vector a = Vector::load(first), b = Vector::load(first + kLanes);
    const Vector c = Vector::load(first + kBelow), d = Vector::load(first + kBelow + kLanes);
    x_sum = x_sum.plus_product(Vector::all(-y0), a).plus_product(Vector::all(y0), b);
    x_sum = x_sum.plus_product(Vector::all(-y1), c).plus_product(Vector::all(y1), d);
    y_sum = y_sum.plus_product(Vector::all(-x0), a).plus_product(Vector::all(-x1), b);
    y_sum = y_sum.plus_product(Vector::all(x0), c).plus_product(Vector::all(x1), d);
  } else {
    const Taps<C> x_taps = x_slope_taps(at, p), y_taps = y_slope_taps(at, p);
    x_exists = any_tap(x_taps);
    y_exists = any_tap(y_taps);
    const int offsets[4] = {0, kLanes, kBelow, kBelow + kLanes};
    for (int tap = 0; tap < 4; ++tap) {
      const C wx = x_taps.weight[tap], wy = y_taps.weight[tap];
      if (wx != C(0)) x_sum = x_sum.plus_product(Vector::all(wx), Vector::load(first + offsets[tap]));
      if (wy != C(0)) y_sum = y_sum.plus_product(Vector::all(wy), Vector::load(first + offsets[tap]));
    }
  }
  x_sum.store(batch.slopes[0][batch.count]);
  y_sum.store(batch.slopes[1][batch.count]);
  batch.x_exists[batch.count] = x_exists;
  batch.y_exists[batch.count] = y_exists;
}

// sums[i] += sum over k, ascending, of gradients[k][i] slopes[k][i].
template <typename C, int kSize>
inline void add_channels(const C* gradients, const C* slopes, int64_t channels, C* sums) {
  using Vector = Lanes<C, kSquare>;
  for (int64_t i = 0; i < kSize; i += kSquare) {
    Vector sum = Vector::load(sums + i);
    for (int64_t k = 0; k < channels; ++k) {
      sum = sum.plus_product(Vector::load(gradients + k * kSize + i), Vector::load(slopes + k * kSize + i));
    }
    sum.store(sums + i);
  }
}

// columns[lane][i] = elements[i][lane].
template <typename C, int kLanes, int kSize>
inline void to_columns(const C* elements, int64_t count, C (&columns)[kLanes][kSize]) {
  for (int64_t i = 0; i < count; i += kSquare) {
    separate<kLanes>(elements + i * kLanes, at_most(count - i, kSquare), columns[0] + i, kSize);
  }
}

// Adds the block of channels [channel, channel + channels) to the gradients of a batch. Between blocks a chunk's sum is
// in `saved` and the total in grad_grid itself, both [sample][axis] of the image, as `grid` is.
template <typename C, int kLanes>
void finish(const RuledProblem& p, int64_t channel, int64_t channels, const Batch<C, kLanes>& batch, const C* grid,
            C* saved, C* grad_grid) {
  constexpr int kSize = Batch<C, kLanes>::kSize;
  alignas(64) C gradient_columns[kLanes][kSize] = {};
  alignas(64) C columns[kLanes][kSize] = {};
  alignas(64) C sums[2][kSize] = {};
  const bool opens = channel % kChannelChunk == 0;
  const bool last = channel + channels == p.c;
  const bool closes = last || (channel + channels) % kChannelChunk == 0;
  to_columns(batch.gradients[0], batch.count, gradient_columns);
  for (int axis = 0; axis < 2; ++axis) {
    if (!opens) {
      for (int i = 0; i < batch.count; ++i) sums[axis][i] = saved[2 * batch.samples[i] + axis];
    }
    to_columns(batch.slopes[axis][0], batch.count, columns);
    add_channels<C, kSize>(gradient_columns[0], columns[0], channels, sums[axis]);
    if (!closes) {
      for (int i = 0; i < batch.count; ++i) saved[2 * batch.samples[i] + axis] = sums[axis][i];
    }
  }
  if (!closes) return;
  for (int i = 0; i < batch.count; ++i) {
    C* gradient = grad_grid + 2 * batch.samples[i];
    Gradient<C> total{(channel < kChannelChunk ? C(0) : gradient[0]) + sums[0][i],
                      (channel < kChannelChunk ? C(0) : gradient[1]) + sums[1][i]};
    if (last) total = by_coordinates(total.x, total.y, grid + 2 * batch.samples[i], p);
    gradient[0] = batch.x_exists[i] ? total.x : C(0);
    gradient[1] = batch.y_exists[i] ? total.y : C(0);
  }
}

// What a tile's owner holds: some 120 KiB.
template <typename C, int kLanes>
struct TileArrays {
  TileSums<C, kLanes> sums;
  Patch<C, kLanes> patch;
  Batch<C, kLanes> batch;
};

// One block of channels of one image, as a tile's owner sees it.
template <typename T>
struct ImageBlock {
  int64_t channel, channels;
  const Compute<T>* gradients;  // [sample][lane]
  const T* input;               // the first plane of the block
  T* grad_input;                // the first plane of the block
  const Compute<T>* grid;       // [sample][axis]
  Compute<T>* saved;            // [sample][axis]
  Compute<T>* grad_grid;        // [sample][axis], or NULL
};

// Whether a pixel of the tile may have more than one chunk of contributions: a sample contributes to a pixel once.
template <typename C, typename Index>
bool has_long_lists(const TileStorage<C, Index>& s, const TilePlace& place, int64_t begin, int64_t end) {
  if (end - begin <= kChunk) return false;
  // Samples by their first tap; a pixel's contributions come from four such cells.
  constexpr int kCellRow = kTileWidth + 1;
  uint32_t cells[(kTileHeight + 1) * kCellRow] = {};
  for (int64_t i = begin; i < end; ++i) {
    const int64_t sample = s.items[i];
    uint32_t& cell = cells[(s.low_y[sample] - place.row + 1) * kCellRow + s.low_x[sample] - place.column + 1];
    if (++cell > kChunk) return true;
  }
  for (int row = 0; row < kTileHeight; ++row) {
    for (int column = 0; column < kTileWidth; ++column) {
      const uint32_t* upper = cells + row * kCellRow + column;
      if (upper[0] + upper[1] + upper[kCellRow] + upper[kCellRow + 1] > kChunk) return true;
    }
  }
  return false;
}

// What the owner of a tile does for one block of channels.
template <bool kCounted, typename T, typename Index, int kLanes>
void sum_tile(const RuledProblem& p, const TileStorage<Compute<T>, Index>& s, const TilePlace& place, int64_t begin,
              int64_t end, const ImageBlock<T>& b, TileArrays<Compute<T>, kLanes>& arrays) {
  using C = Compute<T>;
  TileSums<C, kLanes>& sums = arrays.sums;
  Patch<C, kLanes>& patch = arrays.patch;
  Batch<C, kLanes>& batch = arrays.batch;
  sums.clear(place);
  if (b.grad_grid != nullptr) load_patch<T, kLanes>(p, place, b.input, b.grad_input, b.channels, patch);
  batch.count = 0;
  for (int64_t i = begin; i < end; ++i) {
    const int64_t sample = s.items[i];
    if (i + kFetchedSamples < end) {
      const int64_t ahead = s.items[i + kFetchedSamples];
      __builtin_prefetch(b.gradients + ahead * kLanes);
    }
    const Position<C> at{{s.low_x[sample], s.fraction_x[sample]}, {s.low_y[sample], s.fraction_y[sample]}};
    const int32_t x = at.x.low - place.column, y = at.y.low - place.row;
    const C* gradient = b.gradients + sample * kLanes;
    add_sample<kCounted>(place, x, y, at.x.fraction, at.y.fraction, gradient, sums);
    // A sample is at home in the tile of its first tap, clamped to the image.
    if (b.grad_grid == nullptr || (x < 0 && at.x.low >= 0) || (y < 0 && at.y.low >= 0)) continue;
    append(p, at, x, y, patch, batch);
    Lanes<C, kLanes>::load(gradient).store(batch.gradients[batch.count]);
    batch.samples[batch.count] = sample;
    if (++batch.count == Batch<C, kLanes>::kSize) {
      finish<C, kLanes>(p, b.channel, b.channels, batch, b.grid, b.saved, b.grad_grid);
      batch.count = 0;
    }
  }
  if (batch.count > 0) finish<C, kLanes>(p, b.channel, b.channels, batch, b.grid, b.saved, b.grad_grid);
  write_sums<T, kLanes>(p, place, sums, b.channels, b.grad_input);
}

// Both gradients of `images` images, the group's first being `first`, for a round of channels; that of the grid where
// it is asked for.
template <typename T, typename Index, int kLanes>
void sum_tiles(const RuledProblem& p, const BackwardBuffers<T>& b, const Partition& cut,
               const Storage<Compute<T>, Index>& storage, int64_t first, int64_t images,
               const Channels<kLanes>& channels, const TaskScratch<TileArrays<Compute<T>, kLanes>>& scratch) {
  using C = Compute<T>;
  const int64_t blocks = channels.blocks();
  parallel_for(images * cut.tiles, 1, [&](int64_t task) {
    TileArrays<C, kLanes>& arrays = scratch.mine();
    const int64_t image = task / cut.tiles, tile = task % cut.tiles;
    const TileStorage<C, Index> s = storage.tiles.of_image(p, cut, image);
    const TilePlace place(p, cut, tile);
    const int64_t begin = s.starts[tile], end = s.starts[tile + 1];
    const bool counted = has_long_lists(s, place, begin, end);
    for (int64_t block = 0; block < blocks; ++block) {
      const int64_t channel = channels.first + block * kLanes;
      const int64_t plane = ((first + image) * p.c + channel) * p.pixels;
      const ImageBlock<T> parts{channel,
                                channels.in_block(block),
                                storage.gradients + (image * blocks + block) * p.samples * kLanes,
                                b.input + input_offset(p, first + image) + channel * p.pixels,
                                b.grad_input + plane,
                                b.grid + (first + image) * p.samples * 2,
                                storage.sums + image * p.samples * 2,
                                b.grad_grid == nullptr ? nullptr : b.grad_grid + (first + image) * p.samples * 2};
      if (counted) {
        sum_tile<true, T, Index, kLanes>(p, s, place, begin, end, parts, arrays);
      } else {
        sum_tile<false, T, Index, kLanes>(p, s, place, begin, end, parts, arrays);
      }
    }
  });
}

}  // namespace
}  // namespace baracuda::grid_sample
