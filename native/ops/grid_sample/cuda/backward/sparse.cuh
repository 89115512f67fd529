// SPDX-License-Identifier: Apache-2.0
// The backward of maps with few samples a tile on CUDA: all values of some channels are asked for at once, and a pixel
// finds its contributions, in order, as the bits of a mask of slots.
#pragma once

#include "ops/grid_sample/cuda/backward/tiles.cuh"

namespace baracuda::grid_sample {
namespace {

// A tile with at most so many samples is sparse.
constexpr int kSparse = 64;

// What a slot's lanes need to know of its sample.
struct SlotInfo {
  // The taps that the derivative by x has, those by y, those in the image, whether it is at home in the tile, and
  // where its first tap lies, which may be above and left of the tile.
  uint32_t packed;

  static constexpr int kYTaps = 4, kPixels = 8, kAtHome = 12, kRow = 16, kColumn = 24;

  template <typename C>
  __device__ static SlotInfo make(const Problem& p, const TilePlace& place, const Position<C>& at, bool at_home) {
    const Taps<C> x_taps = x_slope_taps(at, p), y_taps = y_slope_taps(at, p);
    const int32_t row = at.y.low - place.row, column = at.x.low - place.column;
    uint32_t bits = static_cast<uint32_t>(at_home) << kAtHome | static_cast<uint32_t>(row + 1) << kRow |
                    static_cast<uint32_t>(column + 1) << kColumn;
#pragma unroll
    for (int tap = 0; tap < 4; ++tap) {
      const bool is_in = is_pixel(at.x.low + tap % 2, p.input_w) && is_pixel(at.y.low + tap / 2, p.input_h);
      bits |= static_cast<uint32_t>(x_taps.weight[tap] != C(0)) << tap;
      bits |= static_cast<uint32_t>(y_taps.weight[tap] != C(0)) << (kYTaps + tap);
      bits |= static_cast<uint32_t>(is_in) << (kPixels + tap);
    }
    return {bits};
  }
  __device__ bool has_all_taps() const { return (packed & 0xff) == 0xff; }
  __device__ bool has_x_tap(int tap) const { return (packed >> tap & 1) != 0; }
  __device__ bool has_y_tap(int tap) const { return (packed >> (kYTaps + tap) & 1) != 0; }
  __device__ bool has_pixel(int tap) const { return (packed >> (kPixels + tap) & 1) != 0; }
  __device__ bool at_home() const { return (packed >> kAtHome & 1) != 0; }
  __device__ int row() const { return static_cast<int>(packed >> kRow & 0xff) - 1; }
  __device__ int column() const { return static_cast<int>(packed >> kColumn) - 1; }
};

// A warp's channels of a pass.
template <typename C>
struct alignas(16) SparseValues {
  static constexpr int kCount = 16 / static_cast<int>(sizeof(C));
  C lane[kCount];
};

template <typename C>
struct SparseShared {
  // A slot's row is followed by a gap, so that the slots of a quarter of a warp meet no bank conflicts.
  static constexpr int kRow = kTileWarps + 1;
  SparseValues<C> gradients[kSparse][kRow];
  SparseValues<C> x_slopes[kSparse][kRow], y_slopes[kSparse][kRow];
  Fractions<C> fractions[kSparse];
  alignas(16) uint32_t listed[kSparse];  // samples in the order of the list
  uint32_t samples[kSparse];             // by slot
  SlotInfo infos[kSparse];
  uint32_t masks[2][kTilePixels];        // slots that reach a pixel
};

// Contributions of a pixel that it keeps in registers.
constexpr int kSparseKept = 4;

// The weight of a slot's sample on a pixel of the tile that it reaches.
template <typename C>
__device__ __forceinline__ C sparse_weight(const SparseShared<C>& shared, int slot, int pixel) {
  const Fractions<C> at = shared.fractions[slot];
  const SlotInfo info = shared.infos[slot];
  const C weight_x = pixel % kTileWidth == info.column() ? C(1) - at.x : at.x;
  const C weight_y = pixel / kTileWidth == info.row() ? C(1) - at.y : at.y;
  return weight_y * weight_x;
}

// The lowest slot of a mask, which it leaves.
__device__ __forceinline__ int take_slot(uint32_t& low, uint32_t& high) {
  if (low != 0) {
    const int slot = __ffs(static_cast<int>(low)) - 1;
    low &= low - 1;
    return slot;
  }
  const int slot = 32 + __ffs(static_cast<int>(high)) - 1;
  high &= high - 1;
  return slot;
}

// One slot's values in a warp's channels of a pass.
template <typename T>
struct SlotValues {
  using C = Compute<T>;
  static constexpr int kCount = SparseValues<C>::kCount;
  T upstream[kCount], taps[kCount][4];

  // `gradient` and `upper` are in the first of `channels` planes.
  template <bool kFull>
  __device__ __forceinline__ void load(const Problem& p, SlotInfo info, int channels, const T* gradient,
                                       const T* upper) {
    const bool at_home = info.at_home();
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      const bool exists = kFull || k < channels;
      upstream[k] = exists ? *gradient : T{};
      gradient += p.samples;
#pragma unroll
      for (int tap = 0; tap < 4; ++tap) {
        const bool needed = exists && at_home && info.has_pixel(tap);
        taps[k][tap] = needed ? upper[tap / 2 * p.input_w + tap % 2] : T{};
      }
      upper += p.pixels;
    }
  }

  __device__ __forceinline__ void store(SlotInfo info, const Fractions<C>& at, SparseValues<C>* gradients,
                                        SparseValues<C>* x_slopes, SparseValues<C>* y_slopes) const {
    SparseValues<C> values;
#pragma unroll
    for (int k = 0; k < kCount; ++k) values.lane[k] = widen(upstream[k]);
    *gradients = values;
    if (!info.at_home()) return;
    const C x1 = at.x, y1 = at.y, x0 = C(1) - x1, y0 = C(1) - y1;
    const C x_weights[4] = {-y0, y0, -y1, y1}, y_weights[4] = {-x0, -x1, x0, x1};
    SparseValues<C> by_x{}, by_y{};
    const bool has_all_taps = info.has_all_taps();
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
#pragma unroll
      for (int tap = 0; tap < 4; ++tap) {
        const C value = widen(taps[k][tap]);
        if (has_all_taps || info.has_x_tap(tap)) by_x.lane[k] = fma(x_weights[tap], value, by_x.lane[k]);
        if (has_all_taps || info.has_y_tap(tap)) by_y.lane[k] = fma(y_weights[tap], value, by_y.lane[k]);
      }
    }
    *x_slopes = by_x;
    *y_slopes = by_y;
  }
};

// Both gradients of a tile of `count` samples, 1 to kSparse. `marked` is the thread's entry of the list if it has one.
template <typename T, bool kSlopes, class P>
__device__ void sum_sparse_tile(const P& p, const TileGrid& tiles, const TileWork& work, const TilePlace& place,
                                int count, uint32_t marked, const BackwardBuffers<T>& b, T* tile_output, uint32_t pixel,
                                TileRecord<uint32_t>& record, SparseShared<Compute<T>>& shared) {
  using C = Compute<T>;
  constexpr int kCount = SparseValues<C>::kCount, kPass = kCount * kTileWarps;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int64_t plane = static_cast<int64_t>(place.image) * p.c + work.channel;
  const int64_t of_image = 2 * static_cast<int64_t>(place.image) * p.samples;
  const C* const grid = b.grid + of_image;
  const T* const input = b.input + input_offset(p, place.image) + work.channel * p.pixels;

  // The slots, ascending by sample.
  shared.masks[0][thread] = shared.masks[1][thread] = 0;
  const uint32_t sample = marked & ~kHome<uint32_t>;
  Position<C> at{};
  if (thread < count) {
    const C* coordinates = grid + 2 * static_cast<int64_t>(sample);
    at = locate_sample(coordinates[0], coordinates[1], p);
  }
  if (thread < kSparse) shared.listed[thread] = thread < count ? sample : ~0u;
  __syncthreads();
  int own_slot = 0;
  HomeSample<C> own[1] = {};
  if (thread < count) {
    for (int i = 0; i < count; i += 4) {
      const uint4 others = *reinterpret_cast<const uint4*>(&shared.listed[i]);
      own_slot += (others.x < sample) + (others.y < sample) + (others.z < sample) + (others.w < sample);
    }
    // Without slopes no sample is at home, and no pixel of the input is asked for.
    const SlotInfo info = SlotInfo::make(p, place, at, kSlopes && (marked & kHome<uint32_t>) != 0);
    if (info.at_home()) own[0].packed = HomeSample<C>::kPresent | (info.packed & HomeSample<C>::kAllTaps);
    shared.samples[own_slot] = sample;
    shared.infos[own_slot] = info;
    shared.fractions[own_slot] = {at.x.fraction, at.y.fraction};
    const Taps<C> taps = value_taps(at, p);
#pragma unroll
    for (int tap = 0; tap < 4; ++tap) {
      const int reached = pixel_of_tap(at, tap, taps.weight[tap], place);
      if (reached < kTilePixels) atomicOr(&shared.masks[own_slot / 32][reached], 1u << own_slot % 32);
    }
  }
  __syncthreads();

  uint32_t low = 0, high = 0;  // slots that the pixel does not keep
  int length = 0, most = 0;    // contributions: the pixel's, and the most that a pixel of the warp keeps
  C weights[kSparseKept];
  uint32_t kept[kSparseKept];  // offsets of their slots' gradients, in bytes
  for (int32_t base = 0; base < work.channels; base += kPass) {
    const int32_t channel = base + warp * kCount;
    const int channels = work.channels - channel;
    for (int first = 0; first < count; first += 32) {
      const int slot = first + lane;
      if (slot < count && channels > 0) {
        const SlotInfo info = shared.infos[slot];
        SlotValues<T> values;
        const T* gradient = b.grad_output + (plane + channel) * p.samples + shared.samples[slot];
        const T* upper = input + channel * p.pixels +
                         static_cast<int64_t>(place.row + info.row()) * p.input_w + place.column + info.column();
        if (channels >= kCount) {
          values.template load<true>(p, info, channels, gradient, upper);
        } else {
          values.template load<false>(p, info, channels, gradient, upper);
        }
        values.store(info, shared.fractions[slot], &shared.gradients[slot][warp], &shared.x_slopes[slot][warp],
                     &shared.y_slopes[slot][warp]);
      }
    }
    if (base == 0) {
      low = shared.masks[0][thread];
      high = shared.masks[1][thread];
      length = __popc(low) + __popc(high);
      while (most < kSparseKept && __any_sync(kFullWarp, length > most)) ++most;
#pragma unroll
      for (int i = 0; i < kSparseKept; ++i) {
        weights[i] = C(0);
        kept[i] = 0;
        if (i < length) {
          const int slot = take_slot(low, high);
          weights[i] = sparse_weight(shared, slot, thread);
          kept[i] = static_cast<uint32_t>(slot * sizeof(shared.gradients[0]));
        }
      }
    }
    __syncthreads();

    if (own[0].at_home()) {
#pragma unroll
      for (int v = 0; v < kTileWarps; ++v) {
        if (base + v * kCount >= work.channels) break;
        const SparseValues<C> upstream = shared.gradients[own_slot][v];
        const SparseValues<C> by_x = shared.x_slopes[own_slot][v], by_y = shared.y_slopes[own_slot][v];
#pragma unroll
        for (int k = 0; k < kCount; ++k) {
          if (base + v * kCount + k >= work.channels) break;
          own[0].x_sum = fma(upstream.lane[k], by_x.lane[k], own[0].x_sum);
          own[0].y_sum = fma(upstream.lane[k], by_y.lane[k], own[0].y_sum);
        }
      }
    }
    const bool has_more = __any_sync(kFullWarp, (low | high) != 0);
    T* output = tile_output + (pixel == kNoPixel ? 0 : pixel) + base * p.pixels;
#pragma unroll
    for (int v = 0; v < kTileWarps; ++v) {
      if (base + v * kCount >= work.channels) break;
      // With at most kSparse contributions there is one chunk.
      SparseValues<C> sums{};
      const auto add = [&](C weight, uint32_t offset) {
        const SparseValues<C> gradient = reinterpret_cast<const SparseValues<C>*>(
            reinterpret_cast<const char*>(shared.gradients[0]) + offset)[v];
#pragma unroll
        for (int k = 0; k < kCount; ++k) sums.lane[k] = fma(weight, gradient.lane[k], sums.lane[k]);
      };
#pragma unroll
      for (int i = 0; i < kSparseKept; ++i) {
        if (i < most && i < length) add(weights[i], kept[i]);
      }
      if (has_more) {
        uint32_t low_left = low, high_left = high;
        while ((low_left | high_left) != 0) {
          const int slot = take_slot(low_left, high_left);
          add(sparse_weight(shared, slot, thread), static_cast<uint32_t>(slot * sizeof(shared.gradients[0])));
        }
      }
#pragma unroll
      for (int k = 0; k < kCount; ++k, output += p.pixels) {
        if (pixel != kNoPixel && base + v * kCount + k < work.channels) *output = narrow<T>(C(0) + sums.lane[k]);
      }
    }
    if (base + kPass < work.channels) __syncthreads();  // the next pass overwrites the values
  }
  if constexpr (kSlopes) add_chunk<T>(p, work, own, grid, b.grad_grid + of_image, record, shared.listed);
}
static_assert(kSparse <= kChunk);

// As sum_tiles.
template <typename T, bool kSlopes, class P>
__global__ void __launch_bounds__(kTileThreads, kResident<T>)
    sum_sparse(P p, TileGrid tiles, BackwardBuffers<T> b, Storage<Compute<T>, uint32_t> s) {
  __shared__ union Shared {
    TileShared<T, kSlopes> staged;
    SparseShared<Compute<T>> sparse;
    __device__ Shared() {}
  } shared;
  __shared__ int64_t item;
  let_kernel_after_start();
  wait_for_kernel_before();
  if (!take_item<kSlopes>(p, tiles, s, item)) return;
  const TileWork work(p, tiles, s, item);
  TileRecord<uint32_t>& record = s.records[work.tile];
  // Beyond the list's end lies what nobody reads: the list's length is on its way.
  const uint32_t marked = threadIdx.x < kSparse ? s.staged[work.tile * kListed + threadIdx.x] : 0;
  const uint32_t count = record.count;
  if (count > kSparse) return sum_tile(p, tiles, work, b, s, item, shared.staged);
  const TilePlace place(tiles, work.tile);
  const int32_t x = place.column + static_cast<int32_t>(threadIdx.x) % kTileWidth;
  const int32_t y = place.row + static_cast<int32_t>(threadIdx.x) / kTileWidth;
  const uint32_t row = static_cast<uint32_t>(y - place.row), column = static_cast<uint32_t>(x - place.column);
  const uint32_t pixel = x < p.input_w && y < p.input_h ? row * p.input_w + column : kNoPixel;
  T* tile_output = b.grad_input + (static_cast<int64_t>(place.image) * p.c + work.channel) * p.pixels +
                   static_cast<int64_t>(place.row) * p.input_w + place.column;
  if (count == 0) return clear_tile(p, work, tile_output, pixel);
  sum_sparse_tile<T, kSlopes>(p, tiles, work, place, static_cast<int>(count), marked, b, tile_output, pixel, record,
                              shared.sparse);
}

}  // namespace
}  // namespace baracuda::grid_sample
