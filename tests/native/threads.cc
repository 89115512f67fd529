// SPDX-License-Identifier: Apache-2.0
// A C++ program on the library: many threads at once never see each other's error texts, nor a wrong result.
#include <baracuda_kernels.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr int kThreads = 8;
constexpr int kCalls = 4000;

// Alternately fails, in two ways that carry the thread's own number, and succeeds; answers the broken promises.
int work(int number) {
  const int shape[2] = {number, 3};
  const int pad_low[2] = {1, 0};
  const int64_t strides[2] = {3, 1};
  std::vector<double> grad_output(3 * (number + 1)), grad_input(3 * number);
  for (size_t i = 0; i < grad_output.size(); ++i) grad_output[i] = number * 1000.0 + static_cast<double>(i);
  int broken = 0;
  for (int call = 0; call < kCalls; ++call) {
    const int64_t wrong = 1000 * number + call % 1000;
    int32_t status = baracuda_kernels_pad_constant_backward_f64_run(wrong, 2, shape, pad_low, strides, strides,
                                                                    grad_output.data(), grad_input.data(), nullptr, 0,
                                                                    nullptr);
    const std::string mismatch = baracuda_kernels_last_error();
    if (status != BARACUDA_KERNELS_INVALID_PROBLEM) ++broken;
    if (mismatch.find("pad_constant_backward_f64: ") != 0) ++broken;
    if (mismatch.find("input_numel is " + std::to_string(wrong) + ";") == std::string::npos) ++broken;

    status = baracuda_kernels_affine_grid_2d_f32_can_implement(-number, 1, 1, nullptr, nullptr);
    const std::string negative = baracuda_kernels_last_error();
    if (status != BARACUDA_KERNELS_INVALID_PROBLEM) ++broken;
    if (negative.find("affine_grid_2d_f32: n is " + std::to_string(-number) + ";") != 0) ++broken;

    status = baracuda_kernels_pad_constant_backward_f64_run(3 * number, 2, shape, pad_low, strides, strides,
                                                            grad_output.data(), grad_input.data(), nullptr, 0, nullptr);
    if (status != BARACUDA_KERNELS_OK || std::strlen(baracuda_kernels_last_error()) != 0) ++broken;
    if (std::memcmp(grad_input.data(), grad_output.data() + 3, grad_input.size() * sizeof(double)) != 0) ++broken;
  }
  return broken;
}

}  // namespace

int main() {
  std::atomic<int> broken{0};
  std::vector<std::thread> threads;
  for (int number = 1; number <= kThreads; ++number) {
    threads.emplace_back([number, &broken] { broken += work(number); });
  }
  for (std::thread& thread : threads) thread.join();
  // This thread has made no call: nobody else's words are here.
  if (std::strlen(baracuda_kernels_last_error()) != 0) ++broken;
  std::printf("%d threads, %d calls each, %d broken promises\n", kThreads, 3 * kCalls, broken.load());
  return broken == 0 ? 0 : 1;
}
