// SPDX-License-Identifier: Apache-2.0
// Nearest samples on the CPU, of images and of volumes: one tap of weight 1. The forward gathers a plane at a time,
// pixels found once for a block of samples; the gradient to the input adds to a plane at a time, in the order of
// samples. A family says how many pixels a plane has and where a sample's lies.
#pragma once

#include "core/cpu_convert.h"
#include "core/cpu_parallel.h"
#include "core/integer_math.h"
#include "core/workspace.h"
#include "ops/grid_sample/cpu/tiles.h"
#include "ops/grid_sample/launch.h"
#include "ops/grid_sample/math.h"

namespace baracuda::grid_sample {
namespace {

// Samples and channels of a forward task: so many that scattered samples find most of a plane's lines in the cache, and
// that pixels are found once for many channels.
constexpr int64_t kNearestSamples = 2048, kNearestChannels = 32;

// What a family says of its planes.
template <class Problem>
struct Planes;

template <>
struct Planes<RuledProblem> {
  static constexpr int kAxes = 2;

  static int64_t size(const RuledProblem& p) { return p.pixels; }
  // Images that share the backward's scratch.
  static int64_t group(const RuledProblem& p) {
    return at_most(at_least(kGroupSize / (p.samples + p.pixels), 1), p.n);
  }
  template <typename C>
  static bool is_missing_at(const C* coordinates, const RuledProblem& p) {
    return is_missing(coordinates[0], coordinates[1], p);
  }

  // pixels[i] = where sample i lies in a plane, which 31 bits count, or -1; `count` is any number.
  template <typename C>
  static void find_pixels(const RuledProblem& p, const C* grid, int64_t count, int32_t* pixels) {
    int32_t x[kPlaced], y[kPlaced];
    C fractions[kPlaced];
    for (int64_t first = 0; first < count; first += kPlaced) {
      const int64_t part = at_most(count - first, kPlaced);
      place_axis(grid + 2 * first, part, 2, p.input_w, p.rule, x, fractions);
      place_axis(grid + 2 * first + 1, part, 2, p.input_h, p.rule, y, fractions);
      for (int64_t i = 0; i < part; ++i) {
        const int32_t row = y[i] < 0 ? 0 : y[i];  // a product of what lies outside may not fit
        pixels[first + i] = (x[i] < 0) | (y[i] < 0) ? -1 : row * p.input_w + x[i];
      }
    }
  }
};

// A block of samples, one image's. Those without a pixel are lost: they read the first one and are written again.
struct PixelBlock {
  static constexpr int64_t kBits = 64;
  int64_t count;
  bool has_lost;
  int32_t pixels[kNearestSamples];
  uint64_t lost[kNearestSamples / kBits], missing[kNearestSamples / kBits];  // bits, from the lowest
};

template <class Problem, typename C>
void find_block(const Problem& p, const C* grid, PixelBlock& block) {
  Planes<Problem>::find_pixels(p, grid, block.count, block.pixels);
  int32_t all = 0;
  for (int64_t i = 0; i < block.count; ++i) all |= block.pixels[i];
  block.has_lost = all < 0;
  if (!block.has_lost) return;
  for (uint64_t& bits : block.lost) bits = 0;
  for (uint64_t& bits : block.missing) bits = 0;
  for (int64_t i = 0; i < block.count; ++i) {
    if (block.pixels[i] >= 0) continue;
    block.pixels[i] = 0;
    const uint64_t bit = uint64_t{1} << (i % PixelBlock::kBits);
    block.lost[i / PixelBlock::kBits] |= bit;
    if (Planes<Problem>::is_missing_at(grid + i * Planes<Problem>::kAxes, p)) {
      block.missing[i / PixelBlock::kBits] |= bit;
    }
  }
}

// Asks for what the gather of a plane reads: neighbours share lines, so that every eighth sample will do.
template <typename T>
void fetch_pixels(const PixelBlock& block, const T* plane) {
  for (int64_t i = 0; i < block.count; i += 8) __builtin_prefetch(plane + block.pixels[i]);
}

template <typename T>
void gather_plane(const PixelBlock& block, const T* plane, T* output) {
  using C = Compute<T>;
  for (int64_t i = 0; i < block.count; ++i) output[i] = narrow<T>(widen(plane[block.pixels[i]]) + C(0));
  if (!block.has_lost) return;
  for (int64_t first = 0; first < block.count; first += PixelBlock::kBits) {
    const uint64_t missing = block.missing[first / PixelBlock::kBits];
    for (uint64_t lost = block.lost[first / PixelBlock::kBits]; lost != 0; lost &= lost - 1) {
      const int bit = __builtin_ctzll(lost);
      output[first + bit] = narrow<T>((missing >> bit & 1) != 0 ? canonical_nan<C>() : C(0));
    }
  }
}

inline bool fits_gather(int64_t pixels) { return pixels > 0 && pixels <= INT32_MAX; }

// Of planes that fits_gather() lets through.
template <class Problem, class Buffers>
Status sample_nearest(const Problem& p, const Buffers& b) {
  using T = typename Buffers::Element;
  const int64_t sample_blocks = ceil_div(p.samples, kNearestSamples);
  const int64_t channel_blocks = ceil_div(p.c, kNearestChannels);
  const int64_t work = kNearestSamples * at_most(p.c, kNearestChannels);
  parallel_for(p.n * channel_blocks * sample_blocks, grain_for(work), [&](int64_t task) {
    const int64_t image = task / sample_blocks / channel_blocks;
    const int64_t channel = task / sample_blocks % channel_blocks * kNearestChannels;
    const int64_t first = task % sample_blocks * kNearestSamples;
    const int64_t channels = at_most(p.c - channel, kNearestChannels);
    PixelBlock block;
    block.count = at_most(p.samples - first, kNearestSamples);
    find_block(p, b.grid + (image * p.samples + first) * Planes<Problem>::kAxes, block);
    const T* planes = b.input + input_offset(p, image) + channel * Planes<Problem>::size(p);
    T* outputs = b.output + (image * p.c + channel) * p.samples + first;
    for (int64_t k = 0; k < channels; ++k) {
      const T* const plane = planes + k * Planes<Problem>::size(p);
      if (k + 1 < channels) fetch_pixels(block, plane + Planes<Problem>::size(p));
      gather_plane(block, plane, outputs + k * p.samples);
    }
  });
  return Status::kOk;
}

// --- the gradient to the input ---------------------------------------------------------------------------------------

// Planes up to this size are added to where they lie: they stay in a core's cache.
constexpr int64_t kCachedPlaneBytes = int64_t{1} << 20;
// Planes together at least: each has one owner.
constexpr int64_t kFewPlanes = 16;
// Channels that are summed together, so that the totals of long lists have a bound.
constexpr int64_t kScatteredChannels = 512;
// Samples of a task that places them.
constexpr int64_t kScatteredSamples = 2048;

// A contribution before which its pixel's chunk of kChunk others ends.
struct ChunkEnd {
  int32_t contribution;
  int32_t before;  // the pixel's chunk end before this one, or -1
};

// What a group of images shares. The contributions are the samples with a pixel, ascending.
struct ScatterLists {
  WorkspaceLayout layout;
  int64_t images;
  int64_t most_ends;  // of an image
  int32_t* pixels;    // [image][sample]: of each contribution
  int32_t* samples;   // [image][sample]: likewise
  uint32_t* counts;   // [image][pixel]: see kCountBits
  ChunkEnd* ends;     // [image][most_ends]
  int32_t* lengths;   // [image][2]: contributions and chunk ends
  void* totals;       // [image][channel][most_ends]: the pixel's sum up to a chunk end

  template <class Problem>
  ScatterLists(const Problem& p, int64_t element_bytes, void* workspace) {
    images = Planes<Problem>::group(p);
    most_ends = p.samples / kChunk;
    pixels = take<int32_t>(workspace, images * p.samples);
    samples = take<int32_t>(workspace, images * p.samples);
    counts = take<uint32_t>(workspace, images * Planes<Problem>::size(p));
    ends = take<ChunkEnd>(workspace, images * most_ends);
    lengths = take<int32_t>(workspace, images * 2);
    totals = take<char>(workspace, images * at_most(p.c, kScatteredChannels) * most_ends * element_bytes);
  }

 private:
  template <typename U>
  U* take(void* workspace, int64_t count) {
    return workspace_array<U>(workspace, layout.reserve<U>(count));
  }
};

template <class Problem>
bool fits_scatter(const Problem& p, int64_t element_bytes) {
  if (p.samples > INT32_MAX || Planes<Problem>::size(p) * element_bytes > kCachedPlaneBytes) return false;
  return Planes<Problem>::group(p) * p.c >= kFewPlanes;
}

// A count is a pixel's contributions since its last chunk end, in the low bits, and that end's number and 1 above.
constexpr int kCountBits = 9;
constexpr uint32_t kCountMask = (1u << kCountBits) - 1;
static_assert(kChunk <= kCountMask && INT32_MAX / kChunk < (1 << (32 - kCountBits)));

// Leaves out the samples without a pixel and finds where chunks end.
template <class Problem>
void list_contributions(const Problem& p, const ScatterLists& s, int64_t image) {
  int32_t* const pixels = s.pixels + image * p.samples;
  int32_t* const samples = s.samples + image * p.samples;
  uint32_t* const counts = s.counts + image * Planes<Problem>::size(p);
  ChunkEnd* const ends = s.ends + image * s.most_ends;
  for (int64_t pixel = 0; pixel < Planes<Problem>::size(p); ++pixel) counts[pixel] = 0;
  int32_t count = 0, end_count = 0;
  for (int64_t i = 0; i < p.samples; ++i) {
    const int32_t pixel = pixels[i];
    if (pixel < 0) continue;
    uint32_t& own = counts[pixel];
    if ((own & kCountMask) == kChunk) {
      ends[end_count] = {count, static_cast<int32_t>(own >> kCountBits) - 1};
      own = static_cast<uint32_t>(++end_count) << kCountBits;
    }
    ++own;
    pixels[count] = pixel;
    samples[count++] = static_cast<int32_t>(i);
  }
  s.lengths[2 * image] = count;
  s.lengths[2 * image + 1] = end_count;
}

// The gradient to one plane; `totals` has room for the image's chunk ends.
template <class Problem, typename C>
void add_to_plane(const Problem& p, const ScatterLists& s, int64_t image, const C* gradients, C* totals, C* plane) {
  const int32_t* const pixels = s.pixels + image * p.samples;
  const int32_t* const samples = s.samples + image * p.samples;
  const ChunkEnd* const ends = s.ends + image * s.most_ends;
  const int32_t count = s.lengths[2 * image], end_count = s.lengths[2 * image + 1];
  for (int64_t pixel = 0; pixel < Planes<Problem>::size(p); ++pixel) plane[pixel] = C(0);
  int32_t i = 0;
  for (int32_t end = 0; end <= end_count; ++end) {
    const int32_t stop = end < end_count ? ends[end].contribution : count;
    if (count == p.samples) {
      for (; i < stop; ++i) plane[pixels[i]] = plane[pixels[i]] + gradients[i];
    } else {
      for (; i < stop; ++i) plane[pixels[i]] = plane[pixels[i]] + gradients[samples[i]];
    }
    if (end == end_count) break;
    C& partial = plane[pixels[stop]];
    totals[end] = (ends[end].before < 0 ? C(0) : totals[ends[end].before]) + partial;
    partial = C(0);
  }
  // The chunks that are still open. A pixel's last end is the one that no other names.
  const uint32_t* const counts = s.counts + image * Planes<Problem>::size(p);
  for (int32_t end = 0; end < end_count; ++end) {
    const int32_t pixel = pixels[ends[end].contribution];
    if (static_cast<int32_t>(counts[pixel] >> kCountBits) == end + 1) plane[pixel] = totals[end] + plane[pixel];
  }
  for (int64_t pixel = 0; pixel < Planes<Problem>::size(p); ++pixel) plane[pixel] = narrow<C>(plane[pixel]);
}

// Of images with pixels, whose element is what they are computed in.
template <class Problem, class Buffers>
void scatter_nearest(const Problem& p, const Buffers& b, void* workspace) {
  using C = typename Buffers::Element;
  const ScatterLists lists(p, sizeof(C), workspace);
  const int64_t blocks = ceil_div(p.samples, kScatteredSamples);
  for (int64_t first = 0; first < p.n; first += lists.images) {
    const int64_t images = at_most(p.n - first, lists.images);
    parallel_for(images * blocks, grain_for(4 * kScatteredSamples), [&](int64_t task) {
      const int64_t image = task / blocks, sample = task % blocks * kScatteredSamples;
      const auto* const coordinates = b.grid + ((first + image) * p.samples + sample) * Planes<Problem>::kAxes;
      Planes<Problem>::find_pixels(p, coordinates, at_most(p.samples - sample, kScatteredSamples),
                                   lists.pixels + image * p.samples + sample);
    });
    parallel_for(images, grain_for(4 * p.samples), [&](int64_t image) { list_contributions(p, lists, image); });
    for (int64_t channel = 0; channel < p.c; channel += kScatteredChannels) {
      const int64_t channels = at_most(p.c - channel, kScatteredChannels);
      parallel_for(images * channels, grain_for(p.samples + Planes<Problem>::size(p)), [&](int64_t task) {
        const int64_t image = task / channels, k = task % channels;
        const int64_t plane = (first + image) * p.c + channel + k;
        add_to_plane(p, lists, image, b.grad_output + plane * p.samples,
                     static_cast<C*>(lists.totals) + task * lists.most_ends,
                     b.grad_input + plane * Planes<Problem>::size(p));
      });
    }
  }
}

}  // namespace
}  // namespace baracuda::grid_sample
