// SPDX-License-Identifier: Apache-2.0
// Maximum unpooling on CUDA. Who stays in a place is the largest number of an element that names it: an integer, whose
// maximum no order changes.
//
//   forward path   calls                                                what happens
//   zeros          without input                                        core/cuda_zeros.cuh
//   blocks         planes of few places, or of elements so few that     a block finds the winners of some planes, or of
//                  their indices are read for each part of a plane      a part of one, in shared memory
//   few winners    fewer than 2^31 elements of input                    all winners in the workspace, in 32 bits
//   winners        all                                                  the same in 64 bits
//
//   backward path  calls                                                what happens
//   zeros          without grad_output                                  core/cuda_zeros.cuh
//   few elements   fewer than 2^31 elements of input                    a thread an element
//   elements       all                                                  the same, numbered in 64 bits
#include <type_traits>

#include "core/cuda_division.cuh"
#include "core/cuda_launch.cuh"
#include "core/cuda_shared.cuh"
#include "core/cuda_zeros.cuh"
#include "core/paths.h"
#include "core/workspace.h"
#include "ops/max_unpool/launch.h"

namespace baracuda::max_unpool {
namespace {

constexpr int kThreads = 512;
// Of a block whose winners leave room for one or two others on a multiprocessor.
constexpr int kManyThreads = 1024;
// Winners of a block: all devices have so much shared memory for it.
constexpr int64_t kWinnerBytes = 64 * 1024;
template <typename Winner>
constexpr int64_t kWinners = kWinnerBytes / static_cast<int64_t>(sizeof(Winner));
// Elements of a block that 16 bits number, from 1 on. A plane of no more may have several blocks, each of which reads
// all of its indices, from the L2 cache. Of more, and so of more places, that costs more than winners in memory.
constexpr int64_t kShortNumbers = UINT16_MAX;
// Places of a block that has several planes, so that small calls have many blocks.
constexpr int64_t kSharedPlaces = 4096;
// Indices that a thread asks for before it looks at one.
constexpr int32_t kAsked = 8;

// 16 bytes of output.
template <typename T>
constexpr uint32_t kLanes = 16 / sizeof(T);
template <typename T>
struct alignas(16) Vector {
  T lanes[kLanes<T>];
};

// Their winners, of which there are whole vectors.
template <typename T, typename Winner>
struct alignas(kLanes<T> * sizeof(Winner) < 16 ? kLanes<T> * sizeof(Winner) : 16) WinnersOf {
  Winner lanes[kLanes<T>];
};
constexpr uint32_t kWholeVectors = 8;

// What a block has: `planes` whole planes, or one part of `places` places of one plane.
struct Blocks {
  int64_t planes, parts, places, count;

  explicit Blocks(const Problem& p) : planes(1), parts(1), places(p.plane_places), count(p.planes) {
    if (p.plane_places > kSharedPlaces) {
      parts = ceil_div(p.plane_places, has_short_numbers(p) ? kWinners<uint16_t> : kWinners<uint32_t>);
      // The most winners are whole vectors, too.
      places = ceil_div(ceil_div(p.plane_places, parts), kWholeVectors) * kWholeVectors;
      parts = ceil_div(p.plane_places, places);
      count = p.planes * parts;
      return;
    }
    planes = kSharedPlaces / p.plane_places;
    // Many more elements than places: one block's are numbered in 31 bits.
    if (planes * p.plane_inputs > kSharedPlaces * 4) planes = 1;
    count = ceil_div(p.planes, planes);
  }
  // Several planes have fewer elements.
  static bool has_short_numbers(const Problem& p) { return p.plane_inputs <= kShortNumbers; }
};

// Makes the winner of a place no less than a number.
__device__ __forceinline__ void raise_winner(uint32_t* winners, uint32_t place, uint32_t number) {
  atomicMax(winners + place, number);
}
__device__ __forceinline__ void raise_winner(uint16_t* winners, uint32_t place, uint32_t number) {
  uint32_t* const pair = reinterpret_cast<uint32_t*>(winners) + place / 2;
  const uint32_t shift = place % 2 * 16;
  // Most pairs of neighbours have no winner yet.
  for (uint32_t expected = 0;;) {
    const uint32_t found = atomicCAS(pair, expected, (expected & ~(0xffffu << shift)) | number << shift);
    if (found == expected || (found >> shift & 0xffffu) >= number) return;
    expected = found;
  }
}

template <typename Index>
__device__ __forceinline__ int64_t quotient_of(int64_t number, int64_t divisor, const Divider& by) {
  if constexpr (std::is_same_v<Index, uint32_t>) {
    return by.divide(static_cast<uint32_t>(number));
  } else {
    return number / divisor;
  }
}

template <typename T, typename Winner, int kBlockThreads>
__global__ void __launch_bounds__(kBlockThreads)
    unpool_blocks(const __grid_constant__ Problem p, const __grid_constant__ ForwardBuffers<T> b,
                  const __grid_constant__ Blocks blocks, const __grid_constant__ Divider by_inputs) {
  constexpr uint32_t kZeroed = 16 / sizeof(Winner);
  Winner* const winners = dynamic_shared<Winner>();
  for (int64_t block = blockIdx.x; block < blocks.count; block += gridDim.x) {
    const int64_t first_plane = block / blocks.parts * blocks.planes;
    const int64_t begin = block % blocks.parts * blocks.places;
    const int64_t rest_planes = p.planes - first_plane, rest_places = p.plane_places - begin;
    const uint32_t planes = static_cast<uint32_t>(rest_planes < blocks.planes ? rest_planes : blocks.planes);
    const uint32_t places = static_cast<uint32_t>(rest_places < blocks.places ? rest_places : blocks.places);
    const uint32_t all_places = planes * places;
    const uint32_t zeroed = groups_of(all_places, kWholeVectors) * kWholeVectors;
    for (uint32_t i = threadIdx.x * kZeroed; i < zeroed; i += kBlockThreads * kZeroed) {
      *reinterpret_cast<uint4*>(winners + i) = make_uint4(0, 0, 0, 0);
    }
    __syncthreads();
    const int64_t first_input = first_plane * p.plane_inputs;
    const T* const input = b.input + first_input;
    const int64_t* const indices = b.indices + first_input;
    const uint32_t count = planes * static_cast<uint32_t>(p.plane_inputs);
    // The last elements first: where many name one place, most of them find it taken.
    for (int32_t left = static_cast<int32_t>(count - threadIdx.x); left > 0; left -= kBlockThreads * kAsked) {
      const int64_t* const last = indices + (left - 1);
      int64_t asked[kAsked];
#pragma unroll
      for (int32_t k = 0; k < kAsked; ++k) asked[k] = k * kBlockThreads < left ? last[-k * kBlockThreads] : -1;
#pragma unroll
      for (int32_t k = 0; k < kAsked; ++k) {
        // A negative index is past every end.
        const uint64_t place = static_cast<uint64_t>(asked[k]) - static_cast<uint64_t>(begin);
        if (place >= places) continue;
        const uint32_t number = static_cast<uint32_t>(left - k * kBlockThreads);
        raise_winner(winners, by_inputs.divide(number - 1) * places + static_cast<uint32_t>(place), number);
      }
    }
    __syncthreads();
    T* const output = b.output + (first_plane * p.plane_places + begin);
    const bool has_vectors = reinterpret_cast<uintptr_t>(output) % 16 == 0;
    for (uint32_t i = threadIdx.x * kLanes<T>; i < all_places; i += kBlockThreads * kLanes<T>) {
      // All of a vector's elements are on their way before one is stored.
      Vector<T> found;
      const WinnersOf<T, Winner> own = *reinterpret_cast<const WinnersOf<T, Winner>*>(winners + i);
#pragma unroll
      for (uint32_t lane = 0; lane < kLanes<T>; ++lane) {
        found.lanes[lane] = own.lanes[lane] > 0 ? input[static_cast<int64_t>(own.lanes[lane]) - 1] : T{};
      }
      if (has_vectors && i + kLanes<T> <= all_places) {
        *reinterpret_cast<Vector<T>*>(output + i) = found;
        continue;
      }
#pragma unroll
      for (uint32_t lane = 0; lane < kLanes<T>; ++lane) {
        if (i + lane < all_places) output[i + lane] = found.lanes[lane];
      }
    }
    // The next planes' winners must not begin before these are read.
    __syncthreads();
  }
}

template <typename Index, typename Winner>
__global__ void __launch_bounds__(kThreads)
    find_winners(const __grid_constant__ Problem p, const int64_t* const __grid_constant__ indices,
                 Winner* const __grid_constant__ winners, const __grid_constant__ Divider by_inputs) {
  for (int64_t i = grid_thread(); i < p.input_numel; i += grid_threads()) {
    const uint64_t place = static_cast<uint64_t>(indices[i]);
    if (place >= static_cast<uint64_t>(p.plane_places)) continue;
    const int64_t plane = quotient_of<Index>(i, p.plane_inputs, by_inputs);
    atomicMax(winners + plane * p.plane_places + static_cast<int64_t>(place), static_cast<Winner>(i + 1));
  }
}

template <typename T, typename Winner>
__global__ void __launch_bounds__(kThreads)
    take_winners(const __grid_constant__ ForwardBuffers<T> b, const Winner* const __grid_constant__ winners,
                 const __grid_constant__ int64_t numel) {
  for (int64_t i = grid_thread(); i < numel; i += grid_threads()) {
    b.output[i] = winners[i] > 0 ? b.input[winners[i] - 1] : T{};
  }
}

template <typename T, typename Index>
__global__ void __launch_bounds__(kThreads)
    take_gradients(const __grid_constant__ Problem p, const __grid_constant__ BackwardBuffers<T> b,
                   const __grid_constant__ Divider by_inputs) {
  for (int64_t i = grid_thread(); i < p.input_numel; i += grid_threads()) {
    const uint64_t place = static_cast<uint64_t>(b.indices[i]);
    const int64_t plane = quotient_of<Index>(i, p.plane_inputs, by_inputs);
    const bool is_inside = place < static_cast<uint64_t>(p.plane_places);
    b.grad_input[i] = is_inside ? b.grad_output[plane * p.plane_places + static_cast<int64_t>(place)] : T{};
  }
}

// Where elements are numbered in 31 bits, so are those of a plane.
Divider divider_of(const Problem& p) {
  return Divider(p.plane_inputs <= INT32_MAX ? static_cast<int32_t>(p.plane_inputs) : 1);
}

template <typename T>
using ForwardRequest = Request<Problem, ForwardBuffers<T>>;
template <typename T>
using BackwardRequest = Request<Problem, BackwardBuffers<T>>;

template <typename T>
struct ForwardZerosPath {
  static const char* name() { return "zeros"; }
  const ForwardRequest<T>& call;
  bool can() const { return call.p.input_numel == 0; }
  size_t bytes() const { return 0; }
  Status enqueue() const {
    return enqueue_zeros(call.b.output, static_cast<size_t>(call.p.output_numel) * sizeof(T), call.stream);
  }
};

template <typename T>
struct BlocksPath {
  static const char* name() { return "blocks"; }
  const ForwardRequest<T>& call;
  bool can() const {
    const Problem& p = call.p;
    return p.output_numel > 0 &&
           p.plane_inputs <= (p.plane_places <= kWinners<uint32_t> ? INT32_MAX : kShortNumbers);
  }
  size_t bytes() const { return 0; }
  Status enqueue() const {
    return Blocks::has_short_numbers(call.p) ? enqueue_winners<uint16_t>() : enqueue_winners<uint32_t>();
  }

 private:
  template <typename Winner>
  Status enqueue_winners() const {
    const Blocks blocks(call.p);
    const size_t bytes = static_cast<size_t>(ceil_div(blocks.planes * blocks.places, kWholeVectors)) * kWholeVectors *
                         sizeof(Winner);
    return bytes > kWinnerBytes / 2 ? enqueue_blocks<Winner, kManyThreads>(blocks, bytes)
                                    : enqueue_blocks<Winner, kThreads>(blocks, bytes);
  }

  template <typename Winner, int kBlockThreads>
  Status enqueue_blocks(const Blocks& blocks, size_t bytes) const {
    constexpr auto kKernel = unpool_blocks<T, Winner, kBlockThreads>;
    const char* const name = "max_unpool kernel";
    if constexpr (kBlockThreads == kManyThreads) BARACUDA_RETURN_IF_FAILED(allow_shared_bytes<kKernel>(name));
    // Of one plane, every element's is the first.
    const Divider by_inputs = blocks.planes == 1 ? Divider(INT32_MAX) : divider_of(call.p);
    return launch_kernel(name, kKernel, blocks_for(blocks.count, 1), kBlockThreads, bytes, call.stream, call.p, call.b,
                         blocks, by_inputs);
  }
};

template <typename T, typename Index, typename Winner>
struct WinnersPath {
  static const char* name() { return std::is_same_v<Index, uint32_t> ? "few winners" : "winners"; }
  const ForwardRequest<T>& call;
  bool can() const { return std::is_same_v<Index, int64_t> || call.p.input_numel <= INT32_MAX; }
  size_t bytes() const {
    WorkspaceLayout layout;
    layout.reserve<Winner>(call.p.output_numel);
    return layout.bytes();
  }
  Status enqueue() const {
    const Problem& p = call.p;
    Winner* const winners = static_cast<Winner*>(call.workspace);
    BARACUDA_RETURN_IF_FAILED(enqueue_zeros(winners, bytes(), call.stream));
    BARACUDA_RETURN_IF_FAILED(launch_kernel("max_unpool winners kernel", find_winners<Index, Winner>,
                                            blocks_for(p.input_numel, kThreads), kThreads, 0, call.stream, p,
                                            call.b.indices, winners, divider_of(p)));
    return launch_kernel("max_unpool kernel", take_winners<T, Winner>, blocks_for(p.output_numel, kThreads), kThreads,
                         0, call.stream, call.b, static_cast<const Winner*>(winners), p.output_numel);
  }
};

template <typename T>
using ForwardPaths = Paths<ForwardZerosPath<T>, BlocksPath<T>, WinnersPath<T, uint32_t, uint32_t>,
                           WinnersPath<T, int64_t, unsigned long long>>;

template <typename T>
struct BackwardZerosPath {
  static const char* name() { return "zeros"; }
  const BackwardRequest<T>& call;
  bool can() const { return call.p.output_numel == 0; }
  Status enqueue() const {
    return enqueue_zeros(call.b.grad_input, static_cast<size_t>(call.p.input_numel) * sizeof(T), call.stream);
  }
};

template <typename T, typename Index>
struct ElementsPath {
  static const char* name() { return std::is_same_v<Index, uint32_t> ? "few elements" : "elements"; }
  const BackwardRequest<T>& call;
  bool can() const { return std::is_same_v<Index, int64_t> || call.p.input_numel <= INT32_MAX; }
  Status enqueue() const {
    return launch_kernel("max_unpool_backward kernel", take_gradients<T, Index>,
                         blocks_for(call.p.input_numel, kThreads), kThreads, 0, call.stream, call.p, call.b,
                         divider_of(call.p));
  }
};

template <typename T>
Status run(const Problem& p, const ForwardBuffers<T>& b, void* workspace, Stream stream) {
  return ForwardPaths<T>::enqueue(ForwardRequest<T>{p, b, workspace, stream});
}

template <typename T>
Status run(const Problem& p, const BackwardBuffers<T>& b, void* workspace, Stream stream) {
  return Paths<BackwardZerosPath<T>, ElementsPath<T, uint32_t>, ElementsPath<T, int64_t>>::enqueue(
      BackwardRequest<T>{p, b, workspace, stream});
}

template <typename T>
size_t bytes_of(const Problem& p, const ForwardBuffers<T>*) {
  if (p.output_numel == 0) return 0;
  const ForwardBuffers<T> none{};
  return ForwardPaths<T>::choose(ForwardRequest<T>{p, none, nullptr, nullptr},
                                 [](const auto& path) { return path.bytes(); });
}

template <typename T>
size_t bytes_of(const Problem&, const BackwardBuffers<T>*) {
  return 0;
}

}  // namespace

BARACUDA_FLOAT_TYPES(BARACUDA_PROVIDE_BOTH_DIRECTIONS)

}  // namespace baracuda::max_unpool
