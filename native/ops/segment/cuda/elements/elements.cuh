// SPDX-License-Identifier: Apache-2.0
// Sums of many rows of one column by many segments: values are moved once, to buckets, and added in shared memory.
// Where one bucket holds far more than its share, or neighbouring rows have few segments, which only the device knows,
// the list does the call: its launches follow always and end at once otherwise. Here are the scratch of such a call and
// its launches.
#pragma once

#include "core/checked.h"
#include "ops/segment/cuda/elements/sums.cuh"
#include "ops/segment/cuda/list/list.cuh"

namespace baracuda::segment {
namespace {

// Fewer rows are sorted in less time than so many launches take.
constexpr int32_t kManyElements = 1 << 18;

template <class Tag>
struct IsSum : std::false_type {};
template <typename T>
struct IsSum<rule::Sum<T>> : std::true_type {};

inline bool takes_elements(const Problem& p) {
  return p.form == Form::kUnsorted && p.d == 1 && p.n >= kManyElements &&
         p.num_segments > kBuckets / 2 << kLeastLocalBits && p.num_segments <= int64_t{kBuckets} << kMostLocalBits;
}

template <class Tag>
struct ElementScratch {
  using T = typename Tag::Element;
  Buckets buckets;
  BucketWords words{};
  uint32_t* counts;   // [tiles][kBuckets]
  uint32_t* repeats;  // [tiles]
  uint16_t* locals;
  Bits<T>* values;
  void* of_list;  // the list's scratch, in the place of the last four arrays: it is needed when they are not
  size_t bytes;

  ElementScratch(const Problem& p, void* workspace) : buckets{p.n, p.num_segments, kLeastLocalBits} {
    while (int64_t{kBuckets} << buckets.local_bits < p.num_segments) ++buckets.local_bits;
    WorkspaceLayout head;
    words.taken = workspace_array<uint32_t>(workspace, head.reserve<uint32_t>(1));
    words.repeats = workspace_array<uint32_t>(workspace, head.reserve<uint32_t>(1));
    words.totals = workspace_array<uint32_t>(workspace, head.reserve<uint32_t>(kBuckets));
    words.starts = workspace_array<uint32_t>(workspace, head.reserve<uint32_t>(kBuckets + 1));
    of_list = workspace_array<unsigned char>(workspace, head.bytes());
    WorkspaceLayout rest;
    // Of the smallest tiles that a device makes necessary.
    const int64_t tiles = ceil_div(int64_t{p.n}, int64_t{kSortThreads} * kFewElementItems<T>);
    counts = workspace_array<uint32_t>(of_list, rest.reserve<uint32_t>(tiles * kBuckets));
    repeats = workspace_array<uint32_t>(of_list, rest.reserve<uint32_t>(tiles));
    values = workspace_array<Bits<T>>(of_list, rest.reserve<Bits<T>>(p.n));
    locals = workspace_array<uint16_t>(of_list, rest.reserve<uint16_t>(p.n));
    const size_t list_bytes = ListScratch<Tag>(p, nullptr).layout.bytes();
    bytes = head.bytes() + (rest.bytes() > list_bytes ? rest.bytes() : list_bytes);
  }
};

// More than what the kernels' own arrays take beside the shared memory of their launches.
constexpr size_t kStaticBytes = 1024;

// As many segments a block as its shared memory has room for.
template <class Tag>
int32_t range_bits_for(const Buckets& buckets, const DeviceTraits& device) {
  int32_t bits = buckets.local_bits < kMostRangeBits ? buckets.local_bits : kMostRangeBits;
  while (SumTables<Tag>::bytes(bits) + kStaticBytes > static_cast<size_t>(device.shared_bytes)) --bits;
  return bits;
}

// Moves rows to their buckets.
template <int kItems, class Tag>
Status enqueue_buckets(const Problem& p, const Buffers<Tag>& b, const ElementScratch<Tag>& scratch, Stream stream) {
  using T = typename Tag::Element;
  const FromIds ids{index_of(p, b)};
  const uint32_t tiles = blocks_for(p.n, kSortThreads * kItems);
  BARACUDA_RETURN_IF_FAILED(launch_kernel("segment bucket count kernel", count_buckets<kItems>, tiles, kSortThreads, 0,
                                          stream, ids, scratch.buckets, scratch.counts, scratch.repeats));
  BARACUDA_RETURN_IF_FAILED(launch_early("segment bucket front kernel", find_fronts, kBuckets / kFrontBuckets,
                                         kFrontThreads, 0, stream, scratch.counts, scratch.repeats, tiles,
                                         scratch.words));
  constexpr auto kKernel = move_elements<T, kItems>;
  BARACUDA_RETURN_IF_FAILED(allow_shared_bytes<kKernel>("segment bucket kernel"));
  return launch_early("segment bucket kernel", kKernel, tiles, kSortThreads, MoveTables<T, kItems>::kBytes, stream, ids,
                      bits_of(b.rows[0]), scratch.buckets, scratch.counts, scratch.words, scratch.values,
                      scratch.locals);
}

template <class Tag>
Status enqueue_elements(const Problem& p, const Buffers<Tag>& b, void* workspace, Stream stream) {
  using T = typename Tag::Element;
  const ElementScratch<Tag> scratch(p, workspace);
  DeviceTraits device{};
  BARACUDA_RETURN_IF_FAILED(device_traits(&device));
  constexpr int kMany = kElementItems<T>, kFew = kFewElementItems<T>;
  const bool fits = MoveTables<T, kMany>::kBytes + kStaticBytes <= static_cast<size_t>(device.shared_bytes);
  BARACUDA_RETURN_IF_FAILED(fits && p.n >= kTilesWanted * kSortThreads * kMany
                                ? enqueue_buckets<kMany>(p, b, scratch, stream)
                                : enqueue_buckets<kFew>(p, b, scratch, stream));
  const Buckets& buckets = scratch.buckets;
  const int32_t range_bits = range_bits_for<Tag>(buckets, device);
  const uint32_t blocks = blocks_for(int64_t{p.num_segments}, int64_t{1} << buckets.local_bits)
                          << (buckets.local_bits - range_bits);
  BARACUDA_RETURN_IF_FAILED(allow_shared_bytes<sum_elements<Tag>>("segment element kernel"));
  BARACUDA_RETURN_IF_FAILED(launch_early("segment element kernel", sum_elements<Tag>, blocks, kSortThreads,
                                         SumTables<Tag>::bytes(range_bits), stream, Call<Tag>(p, b), buckets,
                                         range_bits, scratch.words, scratch.values, scratch.locals));
  return enqueue_list(p, b, scratch.of_list, stream, Gate{scratch.words.taken});
}

}  // namespace
}  // namespace baracuda::segment
