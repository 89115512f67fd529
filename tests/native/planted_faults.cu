// SPDX-License-Identifier: Apache-2.0
// One fault for each tool of compute-sanitizer, to prove on a machine that the tool sees it. Nothing of the library.
#include <cstdio>
#include <cstring>

namespace {

constexpr int kThreads = 64;  // two warps, which no instruction keeps in step

__global__ void write_past_the_end(int* data) { data[threadIdx.x + 1] = 1; }

__global__ void read_without_a_barrier(int* data) {
  __shared__ int words[kThreads];
  words[threadIdx.x] = data[threadIdx.x];
  data[threadIdx.x] = words[kThreads - 1 - threadIdx.x];
}

__global__ void copy(const int* from, int* to) { to[threadIdx.x] = from[threadIdx.x]; }

}  // namespace

int main(int argc, char** argv) {
  const char* tool = argc == 2 ? argv[1] : "";
  int* data = nullptr;
  int* fresh = nullptr;
  if (cudaMalloc(&data, kThreads * sizeof(int)) != cudaSuccess) return 2;
  if (cudaMalloc(&fresh, kThreads * sizeof(int)) != cudaSuccess) return 2;
  if (cudaMemset(data, 0, kThreads * sizeof(int)) != cudaSuccess) return 2;
  if (std::strcmp(tool, "memcheck") == 0) {
    write_past_the_end<<<1, kThreads>>>(data);
  } else if (std::strcmp(tool, "racecheck") == 0) {
    read_without_a_barrier<<<1, kThreads>>>(data);
  } else if (std::strcmp(tool, "initcheck") == 0) {
    copy<<<1, kThreads>>>(fresh, data);
  } else {
    std::fprintf(stderr, "usage: planted_faults memcheck|racecheck|initcheck\n");
    return 2;
  }
  // Without the tool nothing is seen: the allocator's granularity hides the one word past the end.
  return cudaDeviceSynchronize() == cudaSuccess ? 0 : 2;
}
