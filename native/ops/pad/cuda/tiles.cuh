// SPDX-License-Identifier: Apache-2.0
// Small padded tensors, many in a row: a block stages the sources of a few of them at a time in shared memory, and
// finds every element's places in a table that it makes once for all of them.
#pragma once

#include "core/checked.h"
#include "core/cuda_shared.cuh"
#include "core/integer_math.h"
#include "ops/pad/cuda/slice.cuh"

namespace baracuda::pad {
namespace {

constexpr int kTileThreads = 256;
// A thread loads this many vectors of the stage at once. Stages are small, so that many blocks wait for theirs at once.
constexpr int kTileRounds = 2;
// Blocks that a multiprocessor runs at once.
constexpr int kTileBlocks = 6;
constexpr int kStageVectors = kTileThreads * kTileRounds;
// Rows of at least this are moved fast enough without.
constexpr int64_t kTileRowBytes = 256;
// Table entries, and so places of one element; the table costs more than it saves when few tiles share it.
constexpr int64_t kTablePlaces = 8192;
constexpr int64_t kMostPlaces = 16;
constexpr int64_t kFewestTiles = 4;
// A place is a distance in bytes. An element of a sum has a whole number of groups of them, filled up with kNowhere,
// which is past every stage.
constexpr int kPlacesInGroup = 4;
constexpr uint16_t kNowhere = 0xffff;

// How a slice is cut into tiles: its axes but the outermost, which counts them.
struct Tiles {
  uint32_t elements;  // of one tile's destination
  uint32_t count, per_block;
  uint32_t step;    // tiles that together are whole vectors
  Divider vectors;  // of so many
  int64_t stride;      // from tile to tile in the source, in bytes
  int64_t begin, end;  // the bytes of the source that a tile needs, counted from its begin
  int32_t axes;
  Divider places;   // table entries per element
  uint32_t groups;  // of `per_block` tiles, which the blocks take in turns
  size_t shared_bytes;
};

// The tiles that a block stages at once.
struct Group {
  uint32_t first, count;
  int64_t begin, end;  // in the source
  uint32_t shift;      // from the begin of the stage, which is aligned
};

template <typename Word>
__device__ __forceinline__ Group group_of(const Slice<Word>& s, const Tiles& tiles, uint32_t number) {
  Group group;
  group.first = number * tiles.per_block;
  group.count = tiles.count - group.first < tiles.per_block ? tiles.count - group.first : tiles.per_block;
  group.begin = group.first * tiles.stride + tiles.begin;
  group.end = (group.first + group.count - 1) * tiles.stride + tiles.end;
  group.shift = static_cast<uint32_t>(reinterpret_cast<uint64_t>(s.source) + group.begin) % kVectorBytes;
  return group;
}

// A thread's share of a group's source: begun early, and put into the stage when that is free.
template <typename Word>
class StageLoad {
 public:
  __device__ __forceinline__ void begin(const Slice<Word>& s, const Group& group) {
    begin_ = group.begin - group.shift;
    end_ = group.end;
    vectors_ = static_cast<int>(groups_of<int64_t>(end_ - begin_, kVectorBytes));
    whole_ = begin_ >= s.readable_begin && begin_ + vectors_ * kVectorBytes <= s.readable_end;
    if (!whole_) return;
    const uint4* from = reinterpret_cast<const uint4*>(s.source + begin_);
#pragma unroll
    for (int round = 0; round < kTileRounds; ++round) {
      const int i = round * kTileThreads + static_cast<int>(threadIdx.x);
      if (i < vectors_) loaded_[round] = from[i];
    }
  }

  __device__ __forceinline__ void finish(const Slice<Word>& s, uint4* stage) const {
    if (whole_) {
#pragma unroll
      for (int round = 0; round < kTileRounds; ++round) {
        const int i = round * kTileThreads + static_cast<int>(threadIdx.x);
        if (i < vectors_) stage[i] = loaded_[round];
      }
      return;
    }
    // Near the source's ends only the words that may be touched.
    const Word* from = reinterpret_cast<const Word*>(s.source + begin_);
    Word* to = reinterpret_cast<Word*>(stage);
    const int64_t first = (s.readable_begin - begin_) / static_cast<int64_t>(sizeof(Word));
    const int last = static_cast<int>((end_ - begin_) / static_cast<int64_t>(sizeof(Word)));
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < last; i += kTileThreads) {
      if (i >= first) to[i] = from[i];
    }
  }

 private:
  int64_t begin_, end_;
  int vectors_;
  bool whole_;
  uint4 loaded_[kTileRounds];
};

// The place of element `element` of a tile that `k` others precede, counted from the first that the tile needs. The
// order of sums is that of the axes, so that `k` counts along the innermost axis first.
template <typename T, bool kSums>
__device__ __forceinline__ uint16_t find_place(const Slice<T>& s, const Tiles& tiles, uint32_t element, uint32_t k) {
  int64_t source = -tiles.begin;
  uint32_t rest = element;
#pragma unroll 1
  for (int a = 0; a < tiles.axes; ++a) {
    const DeviceAxis& axis = s.axes[a];
    const uint32_t above = axis.extent.divide(rest);
    const uint32_t index = rest - above * axis.extent.divisor;
    rest = above;
    if (kSums && axis.repeats) {
      const uint32_t kept = index - axis.origin;
      if (kept >= axis.padded.kept) return kNowhere;
      const Preimages places = preimages_of(axis.padded, kept);
      const uint32_t outer = k / places.count;
      source += (place_of(places, k - outer * places.count) - axis.first) * axis.source_stride;
      k = outer;
      continue;
    }
    uint32_t offset = index - axis.begin;
    if (offset >= axis.count) {
      if (!s.folds) return kNowhere;
      offset = static_cast<uint32_t>(folded(axis, index));
    }
    source += static_cast<int32_t>(offset) * axis.source_stride;
  }
  return k == 0 ? static_cast<uint16_t>(source) : kNowhere;
}

// Where entry k of an element of the step's tiles is in the table: vector by vector, in each group by group of places,
// in each word by word.
template <typename T, bool kSums>
__device__ __forceinline__ uint32_t entry_at(const Tiles& tiles, uint32_t element, uint32_t k) {
  constexpr uint32_t kWords = kVectorBytes / sizeof(T);
  if (!kSums) return element;
  const uint32_t groups = tiles.places.divisor / kPlacesInGroup;
  const uint32_t group = element / kWords * groups + k / kPlacesInGroup;
  return (group * kWords + element % kWords) * kPlacesInGroup + k % kPlacesInGroup;
}

template <typename T, bool kSums>
__device__ __forceinline__ void fill_table(const Slice<T>& s, const Tiles& tiles, uint16_t* table) {
  const uint32_t places = tiles.places.divisor, stride = static_cast<uint32_t>(tiles.stride);
  for (uint32_t i = threadIdx.x; i < tiles.elements * places; i += kTileThreads) {
    const uint32_t element = tiles.places.divide(i), k = i - element * places;
    const uint32_t place = find_place<T, kSums>(s, tiles, element, k);
    for (uint32_t tile = 0; tile < tiles.step; ++tile) {
      const uint32_t entry = entry_at<T, kSums>(tiles, tile * tiles.elements + element, k);
      table[entry] = static_cast<uint16_t>(place == kNowhere ? kNowhere : place + tile * stride);
    }
  }
}

template <int kCount>
struct alignas(kCount * sizeof(uint16_t) < kVectorBytes ? kCount * sizeof(uint16_t) : kVectorBytes) Entries {
  uint16_t at[kCount];
};

// How far a place that is none stands behind the others; kNowhere is further.
template <typename T>
__device__ __forceinline__ uint32_t distance_of(const T* nothing, const char* from) {
  return static_cast<uint32_t>(reinterpret_cast<const char*>(nothing) - from);
}

// The words of a vector whose entries are `groups` at `entries`; their places count from `from`.
template <typename T>
__device__ __forceinline__ void sum_words(const char* from, const T* nothing, const uint16_t* entries, uint32_t groups,
                                          T* words) {
  constexpr int kWords = kVectorBytes / sizeof(T);
  using GroupEntries = Entries<kWords * kPlacesInGroup>;
  const uint32_t none = distance_of(nothing, from);
  Compute<T> sums[kWords];
  bool several[kWords];
#pragma unroll
  for (int k = 0; k < kWords; ++k) sums[k] = 0;
#pragma unroll 1
  for (uint32_t n = 0; n < groups; ++n) {
    const GroupEntries group = reinterpret_cast<const GroupEntries*>(entries)[n];
#pragma unroll
    for (int k = 0; k < kWords; ++k) {
      const uint16_t* const at = group.at + k * kPlacesInGroup;
#pragma unroll
      for (int j = 0; j < kPlacesInGroup; ++j) {
        const T term = *reinterpret_cast<const T*>(from + (at[j] < none ? at[j] : none));
        if (j == 0 && n == 0) words[k] = term;
        sums[k] += widen(term);
      }
      if (n == 0) several[k] = at[0] == kNowhere || at[1] != kNowhere;
    }
  }
#pragma unroll
  for (int k = 0; k < kWords; ++k) words[k] = several[k] ? narrow<T>(sums[k]) : words[k];
}

// Writes a group's tiles from the stage.
template <typename T, bool kSums>
__device__ __forceinline__ void write_group(const Slice<T>& s, const Tiles& tiles, const Group& group,
                                            const uint4* stage, const uint16_t* table, const T* nothing) {
  constexpr int32_t kWords = kVectorBytes / sizeof(T);
  const char* const staged = reinterpret_cast<const char*>(stage) + group.shift;
  const uint32_t step_bytes = tiles.step * static_cast<uint32_t>(tiles.stride);
  char* const destination = s.destination + static_cast<int64_t>(group.first) * tiles.elements * sizeof(T);
  const int32_t extent = static_cast<int32_t>(group.count * tiles.elements);
  for (int32_t vector = static_cast<int32_t>(threadIdx.x); vector * kWords < extent; vector += kTileThreads) {
    const uint32_t step = tiles.vectors.divide(static_cast<uint32_t>(vector));
    const uint32_t within = static_cast<uint32_t>(vector) - step * tiles.vectors.divisor;
    const char* const from = staged + step * step_bytes;
    const uint16_t* const entries = table + within * kWords * tiles.places.divisor;
    T words[kWords];
    if constexpr (kSums) {
      sum_words<T>(from, nothing, entries, tiles.places.divisor / kPlacesInGroup, words);
    } else {
      const Entries<kWords> places = *reinterpret_cast<const Entries<kWords>*>(entries);
      const uint32_t none = distance_of(nothing, from);
#pragma unroll
      for (int32_t k = 0; k < kWords; ++k) {
        words[k] = *reinterpret_cast<const T*>(from + (places.at[k] < none ? places.at[k] : none));
      }
    }
    const int32_t rest = extent - vector * kWords;
    store({destination + vector * kVectorBytes, 0, 0, rest < kWords ? rest : kWords}, words);
  }
}

template <typename T, bool kSums>
__global__ void __launch_bounds__(kTileThreads, kTileBlocks)
    write_tiles(const __grid_constant__ Slice<T> s, const __grid_constant__ Tiles tiles) {
  uint4* const stage = dynamic_shared<uint4>();
  // Behind the stage stands what a place that is none holds: the value, or -0, which changes no sum.
  T* const nothing = reinterpret_cast<T*>(stage + kStageVectors);
  uint16_t* const table = reinterpret_cast<uint16_t*>(stage + kStageVectors + 1);
  StageLoad<T> load;
  Group group = group_of(s, tiles, blockIdx.x);
  load.begin(s, group);
  fill_table<T, kSums>(s, tiles, table);
  if (threadIdx.x == 0) {
    if constexpr (kSums) {
      *nothing = narrow<T>(Compute<T>(-0.0));
    } else {
      *nothing = s.value;
    }
  }
  for (uint32_t number = blockIdx.x;;) {
    load.finish(s, stage);
    __syncthreads();
    const Group current = group;
    number += gridDim.x;
    if (number < tiles.groups) {
      group = group_of(s, tiles, number);
      load.begin(s, group);
    }
    write_group<T, kSums>(s, tiles, current, stage, table, nothing);
    if (number >= tiles.groups) return;
    __syncthreads();
  }
}

// The tiles of a group, at most `most` and a multiple of `step`, whose vectors fill the threads' rounds best: 24 tiles
// of 7 x 7 f32 are 294 vectors, and the second round is nearly empty; 20 are 245.
inline int64_t fullest_group(int64_t most, int64_t step, int64_t tile_bytes) {
  const auto vectors_of = [&](int64_t tiles) { return ceil_div(tiles * tile_bytes, kVectorBytes); };
  const auto places_of = [&](int64_t tiles) { return ceil_div(vectors_of(tiles), kTileThreads) * kTileThreads; };
  int64_t best = most - most % step;
  for (int64_t tiles = best - step; tiles > 0; tiles -= step) {
    if (vectors_of(tiles) * places_of(best) > vectors_of(best) * places_of(tiles)) best = tiles;
  }
  return best;
}

// Whether a slice is worth cutting into tiles, and how.
template <typename T>
bool cut_into_tiles(const Problem& p, const Slice<T>& s, bool sums, Tiles* tiles) {
  constexpr int64_t kBytes = sizeof(T);
  const int32_t outer = s.rank - 1;
  if (s.runs > 1 || s.axes_in_run != s.rank || outer < 1) return false;
  if (s.axes[0].extent.divisor * kBytes >= kTileRowBytes) return false;
  const DeviceAxis& counted = s.axes[outer];
  if (counted.repeats || counted.count != counted.extent.divisor || counted.source_stride <= 0) return false;
  int64_t elements = 1, places = 1, first = 0, last = 0;
  int32_t order = s.repeating;
  for (int32_t a = 0; a < outer; ++a) {
    const DeviceAxis& axis = s.axes[a];
    if (!axis.repeats && axis.count == 0) return false;
    if (sums && axis.repeats && axis.place != --order) return false;
    elements *= axis.extent.divisor;
    const Reach reach = reach_of(p, p.axes[p.rank - 1 - a], axis);
    const int64_t one = reach.first * axis.source_stride, other = reach.last * axis.source_stride;
    first += one < other ? one : other;
    last += one < other ? other : one;
    if (elements > kTablePlaces || last - first > kStageVectors * kVectorBytes) return false;
    static_assert(kStageVectors * kVectorBytes < kNowhere);
    uint32_t most = 1;
    for (uint32_t i = 0; sums && axis.repeats && i < axis.padded.kept; ++i) {
      const uint32_t count = preimages_of(axis.padded, i).count;
      if (count > most) most = count;
    }
    if (most > kMostPlaces) return false;
    places *= most;
    if (places > kMostPlaces) return false;
  }
  if (sums) places = ceil_div(places, kPlacesInGroup) * kPlacesInGroup;
  const int64_t stretch = last - first + kBytes, room = (kStageVectors - 2) * kVectorBytes;
  // What lies between the tiles' sources is loaded too.
  if (counted.source_stride > 2 * stretch || stretch > room) return false;
  int64_t per_block = 1 + (room - stretch) / counted.source_stride;
  // A table is read vector by vector, so that steps and the destination must begin where vectors do.
  int64_t step = 1;
  while (step * elements * kBytes % kVectorBytes != 0) step *= 2;
  if (step * elements * places > kTablePlaces || per_block < step) return false;
  if (reinterpret_cast<uint64_t>(s.destination) % kVectorBytes != 0) return false;
  per_block = fullest_group(per_block, step, elements * kBytes);
  if (per_block < kFewestTiles || counted.extent.divisor < per_block) return false;
  tiles->elements = static_cast<uint32_t>(elements);
  tiles->step = static_cast<uint32_t>(step);
  tiles->vectors = Divider(step * elements * kBytes / kVectorBytes);
  tiles->count = counted.extent.divisor;
  tiles->per_block = static_cast<uint32_t>(per_block);
  tiles->groups = blocks_for(tiles->count, per_block);
  tiles->stride = counted.source_stride;
  tiles->begin = first;
  tiles->end = last + kBytes;
  tiles->axes = outer;
  tiles->places = Divider(places);
  const int64_t table_bytes = step * elements * places * static_cast<int64_t>(sizeof(uint16_t));
  tiles->shared_bytes = static_cast<size_t>((kStageVectors + 1) * kVectorBytes + table_bytes);
  return true;
}

// Blocks that make their table for several groups: as many as run at once, or a few less so that all take the same
// number.
inline Status blocks_that_share(const Tiles& tiles, uint32_t* blocks) {
  DeviceTraits traits{};
  BARACUDA_RETURN_IF_FAILED(device_traits(&traits));
  const uint32_t rounds = blocks_for(tiles.groups, int64_t{traits.multiprocessors} * kTileBlocks);
  *blocks = blocks_for(tiles.groups, rounds);
  return Status::kOk;
}

}  // namespace
}  // namespace baracuda::pad
