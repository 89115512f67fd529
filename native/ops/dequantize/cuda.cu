// SPDX-License-Identifier: Apache-2.0
// Dequantize on CUDA: a thread owns one aligned 16-byte vector of the output. A call is cut into launches, each of
// which takes the first path that can.
//
//   path                    launches
//   two channels a vector   a channel's run has a vector's elements, or one less, or more
//   a channel an element    runs of one element; input, output and parameters are aligned vectors
//   any channels            all.
#include <utility>

#include "core/checked.h"
#include "core/cuda_launch.cuh"
#include "core/integer_math.h"
#include "core/paths.h"
#include "ops/dequantize/launch.h"
#include "ops/dequantize/math.h"

namespace baracuda::dequantize {
namespace {

// One vector a thread and one shot: blocks start in address order, which DRAM rewards (2 to 8 vectors cost 1-6 %).
constexpr int kThreads = 512;
constexpr int kVectorBytes = 16;
// Elements per launch: every index then fits the 31 bits that division needs.
constexpr int64_t kSliceElements = int64_t{1} << 30;

// How many channels a vector can meet.
enum class Meets {
  kTwo,   // at most two, because a channel's run is as long as a vector but for one element
  kEach,  // one for each element, whose parameters are aligned vectors too
  kAny,
};

// What one launch writes: whole channels of whole outer rows, or a part of one channel.
template <typename Buffers>
struct Slice {
  Buffers buffers;
  uint32_t count;  // elements
  int32_t head;    // elements by which `output` stands past an aligned vector
  Divider inner, channels;

  __device__ uint32_t channel(uint32_t element) const { return channels.remainder(inner.divide(element)); }
};

template <typename Buffers>
constexpr int kElements = kVectorBytes / sizeof(typename Buffers::Output);

// A load of kBytes (a power of two up to 16, or a multiple of 16) from an address aligned to it, or to 16.
template <int kBytes>
__device__ __forceinline__ void load_bytes(const void* from, void* to) {
  if constexpr (kBytes > 16) {
    load_bytes<16>(from, to);
    load_bytes<kBytes - 16>(static_cast<const char*>(from) + 16, static_cast<char*>(to) + 16);
  } else if constexpr (kBytes == 16) {
    const uint4 loaded = *static_cast<const uint4*>(from);
    memcpy(to, &loaded, kBytes);
  } else if constexpr (kBytes == 8) {
    const uint2 loaded = *static_cast<const uint2*>(from);
    memcpy(to, &loaded, kBytes);
  } else if constexpr (kBytes == 4) {
    const uint32_t loaded = *static_cast<const uint32_t*>(from);
    memcpy(to, &loaded, kBytes);
  } else {
    static_assert(kBytes == 2);
    const uint16_t loaded = *static_cast<const uint16_t*>(from);
    memcpy(to, &loaded, kBytes);
  }
}

constexpr int64_t load_alignment(int64_t bytes) { return bytes < kVectorBytes ? bytes : kVectorBytes; }

template <typename T>
bool is_aligned(const T* pointer, int64_t elements) {
  return reinterpret_cast<uintptr_t>(pointer) % load_alignment(elements * static_cast<int64_t>(sizeof(T))) == 0;
}

// Neighbouring channels' parameters, loaded at once.
template <typename T, typename Q, int kCount>
__device__ __forceinline__ void load_channels(const ForwardBuffers<T, Q>& b, uint32_t c,
                                              ForwardChannel<Compute<T>> (&channels)[kCount]) {
  T scale[kCount];
  int32_t zero_point[kCount];
  load_bytes<kCount * sizeof(T)>(b.scale + c, scale);
  load_bytes<kCount * sizeof(int32_t)>(b.zero_point + c, zero_point);
#pragma unroll
  for (int k = 0; k < kCount; ++k) channels[k] = {widen(scale[k]), zero_point[k]};
}
template <typename T, int kCount>
__device__ __forceinline__ void load_channels(const BackwardBuffers<T>& b, uint32_t c,
                                              BackwardChannel<Compute<T>> (&channels)[kCount]) {
  T scale[kCount];
  load_bytes<kCount * sizeof(T)>(b.scale + c, scale);
#pragma unroll
  for (int k = 0; k < kCount; ++k) channels[k] = {widen(scale[k])};
}
template <typename T, typename Q>
bool are_channels_aligned(const ForwardBuffers<T, Q>& b, int64_t elements) {
  return is_aligned(b.scale, elements) && is_aligned(b.zero_point, elements);
}
template <typename T>
bool are_channels_aligned(const BackwardBuffers<T>& b, int64_t elements) {
  return is_aligned(b.scale, elements);
}

template <typename C>
__device__ __forceinline__ bool is_near(const ForwardChannel<C>& channel) {
  return is_near(channel.zero_point);
}
template <typename C>
__device__ __forceinline__ bool is_near(const BackwardChannel<C>&) {
  return true;
}

template <typename Buffers>
using ChannelOf = decltype(channel_of(std::declval<const Buffers&>(), 0));

// The parameters of a vector's elements.
template <Meets kMeets, typename Buffers>
__device__ __forceinline__ void find_channels(const Slice<Buffers>& s, uint32_t first,
                                              ChannelOf<Buffers> (&channels)[kElements<Buffers>]) {
  if constexpr (kMeets == Meets::kEach) {
    load_channels(s.buffers, s.channels.remainder(first), channels);
  } else {
#pragma unroll
    for (uint32_t k = 0; k < kElements<Buffers>; ++k) channels[k] = channel_of(s.buffers, s.channel(first + k));
  }
}

// The outputs of a vector whose element k has the parameters channel(k).
template <typename Difference, typename Buffers, typename Channels>
__device__ __forceinline__ void multiply(const Buffers& b, const typename Buffers::Input (&inputs)[kElements<Buffers>],
                                         const Channels& channel,
                                         typename Buffers::Output (&outputs)[kElements<Buffers>]) {
#pragma unroll
  for (int k = 0; k < kElements<Buffers>; ++k) outputs[k] = element_of<Difference>(b, inputs[k], channel(k));
}

// `kAlignedInput`: inputs of a vector can be loaded at once.
template <Meets kMeets, bool kAlignedInput, typename Buffers>
__global__ void __launch_bounds__(kThreads) write_vectors(const __grid_constant__ Slice<Buffers> s) {
  using Input = typename Buffers::Input;
  using Output = typename Buffers::Output;
  using Channel = ChannelOf<Buffers>;
  constexpr int32_t kCount = kElements<Buffers>;
  const Buffers& b = s.buffers;
  const int32_t first = static_cast<int32_t>((blockIdx.x * kThreads + threadIdx.x) * kCount) - s.head;
  const int32_t end = static_cast<int32_t>(s.count) - first < kCount ? static_cast<int32_t>(s.count) : first + kCount;
  if (first < 0 || end - first < kCount) {
    // At a launch's ends.
#pragma unroll 1
    for (int32_t i = first < 0 ? 0 : first; i < end; ++i) {
      b.output[i] = element_of<int64_t>(b, b.input[i], channel_of(b, s.channel(static_cast<uint32_t>(i))));
    }
    return;
  }
  Input inputs[kCount];
  if constexpr (kAlignedInput) {
    load_bytes<kCount * sizeof(Input)>(b.input + first, inputs);
  } else {
#pragma unroll
    for (int k = 0; k < kCount; ++k) inputs[k] = b.input[first + k];
  }
  Output outputs[kCount];
  if constexpr (kMeets == Meets::kTwo) {
    const uint32_t run = s.inner.divide(static_cast<uint32_t>(first)), c = s.channels.remainder(run);
    const int32_t split = static_cast<int32_t>((run + 1) * s.inner.divisor - static_cast<uint32_t>(first));
    const Channel low = channel_of(b, c);
    if (split >= kCount && is_near(low)) {
      // Nearly every vector.
      multiply<int32_t>(b, inputs, [&](int) { return low; }, outputs);
    } else {
      const Channel high = split >= kCount ? low : channel_of(b, c + 1 < s.channels.divisor ? c + 1 : 0);
      const auto channel = [&](int k) { return k < split ? low : high; };
      if (is_near(low) && is_near(high)) {
        multiply<int32_t>(b, inputs, channel, outputs);
      } else {
        multiply<int64_t>(b, inputs, channel, outputs);
      }
    }
  } else {
    Channel channels[kCount];
    find_channels<kMeets>(s, static_cast<uint32_t>(first), channels);
    bool near = true;
#pragma unroll
    for (int k = 0; k < kCount; ++k) near = near && is_near(channels[k]);
    const auto channel = [&](int k) { return channels[k]; };
    if (near) {
      multiply<int32_t>(b, inputs, channel, outputs);
    } else {
      multiply<int64_t>(b, inputs, channel, outputs);
    }
  }
  uint4 vector;
  memcpy(&vector, outputs, sizeof vector);
  // By bytes: from an element pointer the compiler forgets the alignment and cuts the store into elements.
  char* bytes = reinterpret_cast<char*>(b.output) + static_cast<int64_t>(first) * static_cast<int64_t>(sizeof(Output));
  *reinterpret_cast<uint4*>(bytes) = vector;
}

template <typename T, typename Q>
ForwardBuffers<T, Q> buffers_at(const ForwardBuffers<T, Q>& b, int64_t element, int64_t channel) {
  return {b.input + element, b.scale + channel, b.zero_point + channel, b.output + element};
}
template <typename T>
BackwardBuffers<T> buffers_at(const BackwardBuffers<T>& b, int64_t element, int64_t channel) {
  return {b.input + element, b.scale + channel, b.output + element};
}

// What one launch is asked to write.
template <typename Buffers>
struct SliceRequest {
  static constexpr int64_t kCount = kElements<Buffers>;
  const Buffers& b;
  int64_t count, channels, inner;
  Stream stream;

  // Elements by which the output stands past an aligned vector.
  int64_t head() const {
    return static_cast<int64_t>(reinterpret_cast<uintptr_t>(b.output) % kVectorBytes / sizeof(*b.output));
  }
  bool has_aligned_input() const { return is_aligned(b.input - head(), kCount); }
  Status launch(void (*kernel)(Slice<Buffers>)) const {
    const Slice<Buffers> s{b, static_cast<uint32_t>(count), static_cast<int32_t>(head()), Divider(inner),
                           Divider(channels)};
    return launch_kernel("dequantize kernel", kernel, blocks_for(head() + count, kThreads * kCount), kThreads, 0,
                         stream, s);
  }
};

template <typename Buffers>
struct TwoChannelsPath {
  const SliceRequest<Buffers>& call;
  static const char* name() { return "two channels a vector"; }
  bool can() const { return call.inner >= call.kCount - 1; }
  Status enqueue() const {
    return call.launch(call.has_aligned_input() ? write_vectors<Meets::kTwo, true, Buffers>
                                                : write_vectors<Meets::kTwo, false, Buffers>);
  }
};

template <typename Buffers>
struct EachChannelPath {
  const SliceRequest<Buffers>& call;
  static const char* name() { return "a channel an element"; }
  bool can() const {
    return call.inner == 1 && call.channels % call.kCount == 0 && call.head() == 0 && call.has_aligned_input() &&
           are_channels_aligned(call.b, call.kCount);
  }
  Status enqueue() const { return call.launch(write_vectors<Meets::kEach, true, Buffers>); }
};

template <typename Buffers>
struct AnyChannelsPath {
  const SliceRequest<Buffers>& call;
  static const char* name() { return "any channels"; }
  Status enqueue() const { return call.launch(write_vectors<Meets::kAny, false, Buffers>); }
};

template <typename Buffers>
using SlicePaths = Paths<TwoChannelsPath<Buffers>, EachChannelPath<Buffers>, AnyChannelsPath<Buffers>>;

// Cuts along the outermost dimension that makes a piece small enough.
template <typename Buffers>
Status run(const Problem& p, const Buffers& b, void*, Stream stream) {
  const int64_t plane = p.channels * p.inner;
  const int64_t inner_step = p.inner < kSliceElements ? p.inner : kSliceElements;
  const int64_t whole_channels = kSliceElements / inner_step;
  const int64_t channel_step = p.channels < whole_channels ? p.channels : whole_channels;
  const int64_t outer_step = plane < kSliceElements ? kSliceElements / plane : 1;
  for (int64_t o = 0; o < p.outer; o += outer_step) {
    const int64_t outer = outer_step < p.outer - o ? outer_step : p.outer - o;
    for (int64_t c = 0; c < p.channels; c += channel_step) {
      const int64_t channels = channel_step < p.channels - c ? channel_step : p.channels - c;
      for (int64_t i = 0; i < p.inner; i += inner_step) {
        const int64_t inner = inner_step < p.inner - i ? inner_step : p.inner - i;
        const Buffers part = buffers_at(b, (o * p.channels + c) * p.inner + i, c);
        BARACUDA_RETURN_IF_FAILED(SlicePaths<Buffers>::enqueue(
            SliceRequest<Buffers>{part, outer * channels * inner, channels, inner, stream}));
      }
    }
  }
  return Status::kOk;
}

}  // namespace

#define BARACUDA_PROVIDE(...) BARACUDA_PROVIDE_LAUNCH(Problem, __VA_ARGS__)
BARACUDA_DEQUANTIZE_BUFFERS(BARACUDA_PROVIDE)
#undef BARACUDA_PROVIDE

}  // namespace baracuda::dequantize
