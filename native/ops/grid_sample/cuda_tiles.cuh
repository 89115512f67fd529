// SPDX-License-Identifier: Apache-2.0
// The backward of most tiles on CUDA: a block owns a tile for one chunk of channels. It orders the tile's samples by
// pixel in shared memory once, then takes a few channels a step through both gradients, while the next step's values
// arrive.
#pragma once

#include "ops/grid_sample/cuda_lists.cuh"
#include "ops/grid_sample/cuda_staging.cuh"

namespace baracuda::grid_sample {
namespace {

// A pixel keeps this many contributions in registers, of which a smooth map has four to six; f64 has room for fewer.
template <typename C>
constexpr int kKept = sizeof(C) == 4 ? 8 : 6;
// Contributions that a network sorts.
constexpr int kNetwork = 8;
// A tile with a pixel of more contributions is crowded: one thread would sort them.
constexpr int kMostSorted = 32;

// The order of a pixel's contributions: sample, then its slot, to find it again.
constexpr int kSlotBits = 9;
static_assert(kStaged <= 1 << kSlotBits);
inline bool fits_narrow_key(const Problem& p) { return p.samples <= int64_t{1} << (32 - kSlotBits); }

// What a block works on: a tile and a chunk of channels.
struct TileWork {
  int64_t tile;
  int32_t chunk, channel, channels;

  __device__ TileWork(const Problem& p, const TileGrid& tiles, int64_t item) {
    const Division at(item, tiles.total);
    tile = at.remainder;
    chunk = static_cast<int32_t>(at.quotient);
    channel = chunk * kChannelChunk;
    channels = p.c - channel < kChannelChunk ? p.c - channel : kChannelChunk;
  }
};

// Replaces the pixels' counts by the sums before them; thread i answers for pixel i.
template <typename C>
__device__ void sum_counts(TileShared<C>& shared) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const uint32_t count = shared.starts[threadIdx.x];
  uint32_t sum = count;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const uint32_t other = __shfl_up_sync(kFullWarp, sum, distance);
    if (lane >= distance) sum += other;
  }
  if (lane == 31) shared.warp_sums[warp] = sum;
  __syncthreads();
  uint32_t before = 0;
  for (int i = 0; i < warp; ++i) before += shared.warp_sums[i];
  shared.starts[threadIdx.x] = before + sum - count;
  if (threadIdx.x == kTileThreads - 1) shared.starts[kTilePixels] = before + sum;
  __syncthreads();
}

// Places the tile's samples and lists them by pixel, in any order. False if a pixel has too many.
template <typename C>
__device__ bool list_entries(const Problem& p, const TilePlace& place, int count, const uint32_t* staged, const C* grid,
                             TileShared<C>& shared) {
  shared.starts[threadIdx.x] = 0;
  __syncthreads();
  // Where each tap goes: its pixel, above its rank there.
  constexpr int kRankBits = 16;
  uint32_t places[kRounds][4];
#pragma unroll
  for (int round = 0; round < kRounds; ++round) {
    const int slot = round * kTileThreads + threadIdx.x;
    if (slot >= count) continue;
    const uint32_t marked = staged[slot];
    const C* coordinates = grid + 2 * static_cast<int64_t>(marked & ~kHome<uint32_t>);
    const Position<C> at = locate_sample(coordinates[0], coordinates[1], p);
    const Taps<C> taps = value_taps(at, p);
    shared.samples[slot] = marked;
    shared.low_x[slot] = static_cast<int8_t>(at.x.low - place.column);
    shared.low_y[slot] = static_cast<int8_t>(at.y.low - place.row);
    shared.fraction_x[slot] = at.x.fraction;
    shared.fraction_y[slot] = at.y.fraction;
#pragma unroll
    for (int tap = 0; tap < 4; ++tap) {
      const int pixel = pixel_of_tap(at, tap, taps.weight[tap], place);
      const uint32_t rank = pixel < kTilePixels ? atomicAdd(&shared.starts[pixel], 1u) : 0;
      places[round][tap] = static_cast<uint32_t>(pixel) << kRankBits | rank;
    }
  }
  __syncthreads();
  if (__syncthreads_or(shared.starts[threadIdx.x] > kMostSorted)) return false;
  sum_counts(shared);
#pragma unroll
  for (int round = 0; round < kRounds; ++round) {
    const int slot = round * kTileThreads + threadIdx.x;
    if (slot >= count) continue;
#pragma unroll
    for (int tap = 0; tap < 4; ++tap) {
      const uint32_t pixel = places[round][tap] >> kRankBits, rank = places[round][tap] & ((1u << kRankBits) - 1);
      if (pixel < kTilePixels) shared.entries[shared.starts[pixel] + rank] = static_cast<uint16_t>(slot);
    }
  }
  __syncthreads();
  return true;
}

// One pixel's contributions: the first kKept<C> in registers, the others in shared memory.
template <typename C>
struct PixelList {
  uint32_t extent;               // where it starts in `entries`, above its length
  uint32_t slots[kKept<C> / 2];  // two a word
  C weights[kKept<C>];

  static constexpr int kLengthBits = 16;
  __device__ int length() const { return static_cast<int>(extent & ((1u << kLengthBits) - 1)); }
  __device__ int start() const { return static_cast<int>(extent >> kLengthBits); }
  __device__ uint32_t slot(int i) const { return slots[i / 2] >> (16 * (i % 2)) & 0xffff; }
};

// The weight of a sample at a pixel of its four.
template <typename C>
__device__ __forceinline__ C weight_at(const TileShared<C>& shared, int slot, int x, int y) {
  const C fraction_x = shared.fraction_x[slot], fraction_y = shared.fraction_y[slot];
  const C weight_x = x == shared.low_x[slot] ? C(1) - fraction_x : fraction_x;
  const C weight_y = y == shared.low_y[slot] ? C(1) - fraction_y : fraction_y;
  return weight_y * weight_x;
}

template <typename Key>
__device__ __forceinline__ void put_in_order(Key& a, Key& b) {
  const Key low = a < b ? a : b;
  b = a < b ? b : a;
  a = low;
}

// Sorts the thread's pixel's contributions by sample.
template <typename Key, typename C>
__device__ PixelList<C> sort_entries(TileShared<C>& shared) {
  const int x = threadIdx.x % kTileWidth, y = threadIdx.x / kTileWidth;
  PixelList<C> list;
  const uint32_t start = shared.starts[threadIdx.x];
  const int length = static_cast<int>(shared.starts[threadIdx.x + 1] - start);
  list.extent = start << PixelList<C>::kLengthBits | static_cast<uint32_t>(length);
  uint16_t* entries = shared.entries + start;
  const auto key_of = [&](uint32_t slot) {
    return static_cast<Key>(shared.samples[slot] & ~kHome<uint32_t>) << kSlotBits | slot;
  };
  if (length > kKept<C>) {
    for (int i = 1; i < length; ++i) {
      const uint16_t slot = entries[i];
      const Key key = key_of(slot);
      int j = i;
      for (; j > 0 && key_of(entries[j - 1]) > key; --j) entries[j] = entries[j - 1];
      entries[j] = slot;
    }
    for (int i = kKept<C>; i < length; ++i) {
      shared.weights[start + i] = weight_at(shared, entries[i], x, y);
    }
  }
  Key keys[kNetwork];
#pragma unroll
  for (int i = 0; i < kNetwork; ++i) keys[i] = i < kKept<C> && i < length ? key_of(entries[i]) : ~Key{0};
  // Batcher's odd-even merge sort of eight.
  constexpr int kComparisons = 19;
  constexpr uint8_t kPairs[kComparisons][2] = {{0, 1}, {2, 3}, {4, 5}, {6, 7}, {0, 2}, {1, 3}, {4, 6},
                                               {5, 7}, {1, 2}, {5, 6}, {0, 4}, {1, 5}, {2, 6}, {3, 7},
                                               {2, 4}, {3, 5}, {1, 2}, {3, 4}, {5, 6}};
#pragma unroll
  for (int i = 0; i < kComparisons; ++i) put_in_order(keys[kPairs[i][0]], keys[kPairs[i][1]]);
#pragma unroll
  for (int i = 0; i < kKept<C>; ++i) {
    const uint32_t slot = static_cast<uint32_t>(keys[i]) & ((1u << kSlotBits) - 1);
    const bool exists = i < length;
    list.slots[i / 2] = i % 2 == 0 ? slot : list.slots[i / 2] | slot << 16;
    list.weights[i] = exists ? weight_at(shared, static_cast<int>(slot), x, y) : C(0);
  }
  return list;
}

// A sample at home in the tile and its sums. Its fractions stay in shared memory.
template <typename C>
struct HomeSample {
  // 0: not at home. Else kPresent, the taps that the derivative by x has, those by y, and its first tap's place in the
  // patch above kPlaceBias.
  uint32_t packed;
  C x_sum, y_sum;

  static constexpr uint32_t kPresent = 1u << 31;
  static constexpr uint32_t kAllTaps = 0xff;
  static constexpr int kTapBits = 8;
  // A first tap may lie above and left of the patch.
  static constexpr int kPlaceBias = kPatchColumns + 1;
  static constexpr uint32_t kPlaceMask = 0xffff;

  __device__ bool at_home() const { return packed != 0; }
  __device__ int place() const { return static_cast<int>(packed >> kTapBits & kPlaceMask) - kPlaceBias; }
  __device__ bool has_all_taps() const { return (packed & kAllTaps) == kAllTaps; }
  __device__ bool has_x_tap(int tap) const { return (packed >> tap & 1) != 0; }
  __device__ bool has_y_tap(int tap) const { return (packed >> (4 + tap) & 1) != 0; }
  __device__ bool has_x_taps() const { return (packed & 0x0f) != 0; }
  __device__ bool has_y_taps() const { return (packed & 0xf0) != 0; }
};

template <typename C>
__device__ HomeSample<C> home_sample(const Problem& p, const TilePlace& place, int count, int slot,
                                     const TileShared<C>& shared) {
  HomeSample<C> sample{};
  if (slot >= count || (shared.samples[slot] & kHome<uint32_t>) == 0) return sample;
  const int x = shared.low_x[slot], y = shared.low_y[slot];
  const Position<C> at{{x + place.column, shared.fraction_x[slot]}, {y + place.row, shared.fraction_y[slot]}};
  const Taps<C> x_taps = x_slope_taps(at, p), y_taps = y_slope_taps(at, p);
  uint32_t taps = 0;
#pragma unroll
  for (int tap = 0; tap < 4; ++tap) {
    taps |= static_cast<uint32_t>(x_taps.weight[tap] != C(0)) << tap;
    taps |= static_cast<uint32_t>(y_taps.weight[tap] != C(0)) << (4 + tap);
  }
  const uint32_t above = static_cast<uint32_t>(y * kPatchColumns + x + HomeSample<C>::kPlaceBias);
  sample.packed = HomeSample<C>::kPresent | above << HomeSample<C>::kTapBits | taps;
  return sample;
}

// A step's values of a sample: one load.
template <typename C>
struct alignas(16) StepValues {
  C lane[kStep<C>];
};

// Adds a step to a sample's sums; `pixel` is its first tap's in the step's first patch.
template <bool kFull, typename C>
__device__ __forceinline__ void add_slopes(HomeSample<C>& sample, int channels, const C* pixel, C x1, C y1,
                                           const StepValues<C>& gradient) {
  constexpr int kPlane = kPatchRows * kPatchColumns;
  const C x0 = C(1) - x1, y0 = C(1) - y1;
  C x_slopes[kStep<C>] = {}, y_slopes[kStep<C>] = {};
  if (sample.has_all_taps()) {
#pragma unroll
    for (int k = 0; k < kStep<C>; ++k, pixel += kPlane) {
      const C a = pixel[0], b = pixel[1], c = pixel[kPatchColumns], d = pixel[kPatchColumns + 1];
      x_slopes[k] = fma(y1, d, fma(-y1, c, fma(y0, b, fma(-y0, a, C(0)))));
      y_slopes[k] = fma(x1, d, fma(x0, c, fma(-x1, b, fma(-x0, a, C(0)))));
    }
  } else {
    const C x_weights[4] = {-y0, y0, -y1, y1}, y_weights[4] = {-x0, -x1, x0, x1};
#pragma unroll
    for (int tap = 0; tap < 4; ++tap) {
      const C* tapped = pixel + (tap % 2 + tap / 2 * kPatchColumns);
#pragma unroll
      for (int k = 0; k < kStep<C>; ++k) {
        const C value = tapped[k * kPlane];
        if (sample.has_x_tap(tap)) x_slopes[k] = fma(x_weights[tap], value, x_slopes[k]);
        if (sample.has_y_tap(tap)) y_slopes[k] = fma(y_weights[tap], value, y_slopes[k]);
      }
    }
  }
#pragma unroll
  for (int k = 0; k < kStep<C>; ++k) {
    if (!kFull && k >= channels) break;
    sample.x_sum = fma(gradient.lane[k], x_slopes[k], sample.x_sum);
    sample.y_sum = fma(gradient.lane[k], y_slopes[k], sample.y_sum);
  }
}

// One step of both gradients from `buffer`. `output` is the thread's pixel in the step's first plane, or null. Planes
// beyond `channels`, which counts only in a step that is not kFull, are computed from what lies there and dropped.
template <bool kFull, typename T>
__device__ __forceinline__ void sum_step(const Problem& p, int buffer, int channels, const PixelList<Compute<T>>& list,
                                         HomeSample<Compute<T>> (&samples)[kRounds], T* output,
                                         const TileShared<Compute<T>>& shared) {
  using C = Compute<T>;
  const auto values_of = [&](uint32_t slot) {
    return *reinterpret_cast<const StepValues<C>*>(shared.gradients[buffer][slot]);
  };
#pragma unroll
  for (int round = 0; round < kRounds; ++round) {
    if (!samples[round].at_home()) continue;
    const int slot = round * kTileThreads + threadIdx.x;
    add_slopes<kFull>(samples[round], channels, &shared.patch[buffer][0][0][0] + samples[round].place(),
                      shared.fraction_x[slot], shared.fraction_y[slot], values_of(slot));
  }
  // With at most kMostSorted contributions there is one chunk.
  C sums[kStep<C>] = {};
#pragma unroll
  for (int i = 0; i < kKept<C>; ++i) {
    if (i >= list.length()) continue;
    const StepValues<C> gradient = values_of(list.slot(i));
#pragma unroll
    for (int k = 0; k < kStep<C>; ++k) sums[k] = fma(list.weights[i], gradient.lane[k], sums[k]);
  }
  for (int i = kKept<C>; i < list.length(); ++i) {
    const StepValues<C> gradient = values_of(shared.entries[list.start() + i]);
    const C weight = shared.weights[list.start() + i];
#pragma unroll
    for (int k = 0; k < kStep<C>; ++k) sums[k] = fma(weight, gradient.lane[k], sums[k]);
  }
  if (output == nullptr) return;
#pragma unroll
  for (int k = 0; k < kStep<C>; ++k) {
    if (kFull || k < channels) output[k * p.pixels] = narrow<T>(C(0) + sums[k]);
  }
}
static_assert(kMostSorted <= kChunk);

// Adds a chunk's sums of the samples at home to their totals, which wait in grad_grid. Chunks take turns: owners drew
// their tickets in order, so that the one that has the turn is running.
template <typename C>
__device__ void add_chunk(const Problem& p, const TileWork& work, HomeSample<C> (&samples)[kRounds], C* grad_grid,
                          TileRecord& record, const TileShared<C>& shared) {
  const bool last = work.channel + work.channels == p.c;
  if (work.chunk > 0) {
    if (threadIdx.x == 0) {
      while (*const_cast<volatile Counter*>(&record.taken) != static_cast<Counter>(work.chunk)) {
      }
      __threadfence();
    }
    __syncthreads();
  }
#pragma unroll
  for (int round = 0; round < kRounds; ++round) {
    const HomeSample<C>& sample = samples[round];
    if (!sample.at_home()) continue;
    // Volatile: another block wrote these since this multiprocessor may have cached them.
    volatile C* gradient =
        grad_grid + 2 * static_cast<int64_t>(shared.samples[round * kTileThreads + threadIdx.x] & ~kHome<uint32_t>);
    const C x_total = (work.chunk == 0 ? C(0) : gradient[0]) + sample.x_sum;
    const C y_total = (work.chunk == 0 ? C(0) : gradient[1]) + sample.y_sum;
    const C x = last ? narrow<C>(x_total * pixels_per_unit<C>(p.input_w)) : x_total;
    const C y = last ? narrow<C>(y_total * pixels_per_unit<C>(p.input_h)) : y_total;
    gradient[0] = sample.has_x_taps() ? x : C(0);
    gradient[1] = sample.has_y_taps() ? y : C(0);
  }
  if (last) return;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) *const_cast<volatile Counter*>(&record.taken) = static_cast<Counter>(work.chunk) + 1;
}

// A tile without samples: its pixels' gradients are 0.
template <typename T>
__device__ void clear_tile(const Problem& p, const TileWork& work, T* output) {
  if (output == nullptr) return;
  for (int k = 0; k < work.channels; ++k) output[k * p.pixels] = narrow<T>(Compute<T>(0));
}

template <typename Key, typename T>
__device__ void sum_tile(const Problem& p, const TileGrid& tiles, const TileWork& work, const BackwardBuffers<T>& b,
                         const Storage<Compute<T>, uint32_t>& s, TileSource<T> source,
                         TileShared<Compute<T>>& shared, uint4* vectors) {
  using C = Compute<T>;
  const TilePlace place(tiles, work.tile);
  const int32_t x = place.column + static_cast<int32_t>(threadIdx.x) % kTileWidth;
  const int32_t y = place.row + static_cast<int32_t>(threadIdx.x) / kTileWidth;
  const int64_t plane = static_cast<int64_t>(place.image) * p.c + work.channel;
  T* output = x < p.input_w && y < p.input_h
                  ? b.grad_input + plane * p.pixels + static_cast<int64_t>(y) * p.input_w + x
                  : nullptr;
  TileRecord& record = s.records[work.tile];
  if (record.count == 0) return clear_tile(p, work, output);
  const int64_t first_sample = static_cast<int64_t>(place.image) * p.samples;
  const int count = record.count <= kStaged ? static_cast<int>(record.count) : kStaged;
  if (record.count > kStaged ||
      !list_entries(p, place, count, s.staged + work.tile * kStaged, b.grid + 2 * first_sample, shared)) {
    if (work.chunk == 0 && threadIdx.x == 0) reserve_list(s, work.tile);
    return;
  }
  source.gradients += plane * p.samples;
  source.input += plane * p.pixels + static_cast<int64_t>(place.row) * p.input_w + place.column;
  const auto stage_next = [&](int buffer, int32_t channels) {
    if (channels >= kStep<C>) {
      stage_step<true>(p, place, count, buffer, channels, source, shared, vectors);
    } else if (channels > 0) {
      stage_step<false>(p, place, count, buffer, channels, source, shared, vectors);
    }
    source.advance(p);
  };
  stage_next(0, work.channels);
  const PixelList<C> list = sort_entries<Key>(shared);
  HomeSample<C> samples[kRounds];
#pragma unroll
  for (int round = 0; round < kRounds; ++round) {
    samples[round] = home_sample(p, place, count, round * kTileThreads + static_cast<int>(threadIdx.x), shared);
  }
  int buffer = 0;
  for (int32_t left = work.channels; left > 0; left -= kStep<C>, buffer ^= 1) {
    receive_step(p, place, count, buffer, left, source, shared, vectors);
    __syncthreads();  // this step's values are there, and all have left the buffer that the next step's go to
    stage_next(buffer ^ 1, left - kStep<C>);
    if (left >= kStep<C>) {
      sum_step<true>(p, buffer, left, list, samples, output, shared);
    } else {
      sum_step<false>(p, buffer, left, list, samples, output, shared);
    }
    if (output != nullptr) output += kStep<C> * p.pixels;
  }
  add_chunk(p, work, samples, b.grad_grid + 2 * first_sample, record, shared);
}

// Shared memory of a block.
template <typename T>
constexpr size_t kTileSharedBytes = sizeof(TileShared<Compute<T>>) + (kPacked<T> ? kTileThreads * sizeof(uint4) : 0);

// Both gradients, for the tiles that are not crowded; reserves the lists of those that are. A block takes one item.
// `source` holds the tensors.
template <typename Key, typename T>
__global__ void __launch_bounds__(kTileThreads, kResident<Compute<T>>)
    sum_tiles(Problem p, TileGrid tiles, BackwardBuffers<T> b, Storage<Compute<T>, uint32_t> s, TileSource<T> source) {
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  TileShared<Compute<T>>& shared = *reinterpret_cast<TileShared<Compute<T>>*>(shared_bytes);
  uint4* vectors = reinterpret_cast<uint4*>(shared_bytes + sizeof(TileShared<Compute<T>>));
  int64_t item = blockIdx.x;
  // The owner of a later chunk waits for an earlier one, which must therefore have started: tickets order the starts.
  if (gridDim.x > tiles.total) {
    if (threadIdx.x == 0) shared.item = static_cast<int64_t>(atomicAdd(&s.totals->tickets, Counter{1}));
    __syncthreads();
    item = shared.item;
  }
  sum_tile<Key>(p, tiles, TileWork(p, tiles, item), b, s, source, shared, vectors);
}

}  // namespace
}  // namespace baracuda::grid_sample
