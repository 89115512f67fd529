// SPDX-License-Identifier: Apache-2.0
// Every operator on a thread with a small stack, which is painted before each call and read after it: no call may reach
// deeper than the header says. An argument gives the stack's size instead, to measure what would not survive, and then
// the deepest call of each operator is printed.
#include <pthread.h>
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#include "calls.h"

namespace {

using calls::Call;

// What the header promises, and a thread that has twice that for its own affairs and the C library's.
constexpr size_t kPromised = 32 * 1024;
constexpr size_t kSmall = 64 * 1024;
constexpr size_t kGuard = 4096;
constexpr unsigned char kPaint = 0xa7;

// Memory for one stack after the other, with a page below it that nobody may touch.
class Stack {
 public:
  explicit Stack(size_t bytes) : bytes_(bytes) {
    void* const found = mmap(nullptr, bytes + kGuard, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (found == MAP_FAILED) std::abort();
    mprotect(found, kGuard, PROT_NONE);
    lowest_ = static_cast<unsigned char*>(found) + kGuard;
  }
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;
  ~Stack() { munmap(lowest_ - kGuard, bytes_ + kGuard); }

  // Runs body(context) on a thread of its own, on this stack.
  void run(void* (*body)(void*), void* context) {
    std::memset(lowest_, kPaint, bytes_);
    pthread_attr_t attributes;
    pthread_t thread;
    if (pthread_attr_init(&attributes) != 0 || pthread_attr_setstack(&attributes, lowest_, bytes_) != 0 ||
        pthread_create(&thread, &attributes, body, context) != 0) {
      std::fprintf(stderr, "no thread with a stack of %zu bytes\n", bytes_);
      std::abort();
    }
    pthread_join(thread, nullptr);
    pthread_attr_destroy(&attributes);
  }

  // From an address on the stack down to the deepest byte that lost its paint.
  size_t depth_below(const void* address) const {
    const unsigned char* deepest = lowest_;
    while (deepest < address && *deepest == kPaint) ++deepest;
    return static_cast<size_t>(static_cast<const unsigned char*>(address) - deepest);
  }

 private:
  size_t bytes_;
  unsigned char* lowest_;
};

struct Work {
  const Call* call;
  void* const* pointers;
  void* workspace;
  size_t workspace_bytes;
  int32_t status;
  std::string message;
  const void* frame;  // where the caller's stack stood
};

void* work(void* context) {
  Work& mine = *static_cast<Work*>(context);
  mine.frame = __builtin_frame_address(0);
  mine.status = mine.call->run(mine.pointers, mine.workspace, mine.workspace_bytes);
  return nullptr;
}

// A call that a check refuses: texts are made on the stack as well. The text is per thread, so that it cannot be asked
// for here.
void* refuse(void* context) {
  Work& mine = *static_cast<Work*>(context);
  mine.frame = __builtin_frame_address(0);
  mine.status = baracuda_kernels_roi_align_f64_can_implement(1, 1, 4, 4, 1, 1, 1, 1e38f * 1e38f, 1, 0, nullptr, nullptr,
                                                             nullptr);
  return nullptr;
}

}  // namespace

int main(int count, char** arguments) {
  const size_t bytes = count > 1 ? std::strtoul(arguments[1], nullptr, 10) : kSmall;
  Stack stack(bytes);
  const calls::Table table(calls::Sizes::kLargeToo);
  std::map<std::string, size_t> depths;
  int wrong = 0;
  Work refused{};
  stack.run(refuse, &refused);
  depths["refused"] = stack.depth_below(refused.frame);
  if (refused.status != BARACUDA_KERNELS_INVALID_PROBLEM) ++wrong;
  for (const Call& call : table.calls()) {
    std::vector<void*> pointers;
    for (const calls::Tensor& tensor : call.tensors) pointers.push_back(std::calloc(tensor.bytes() + 1, 1));
    void* workspace = std::aligned_alloc(16, (call.workspace_bytes + 16) / 16 * 16);
    for (const bool own_scratch : {false, true}) {
      Work mine{&call, pointers.data(), own_scratch ? nullptr : workspace, own_scratch ? 0 : call.workspace_bytes,
                0, {}, nullptr};
      stack.run(work, &mine);
      if (mine.status != 0) {
        std::fprintf(stderr, "%s: status %d\n", call.symbol.c_str(), mine.status);
        ++wrong;
      }
      size_t& deepest = depths[call.symbol];
      const size_t depth = stack.depth_below(mine.frame);
      deepest = depth > deepest ? depth : deepest;
    }
    std::free(workspace);
    for (void* pointer : pointers) std::free(pointer);
  }
  size_t deepest = 0;
  for (const auto& [symbol, depth] : depths) {
    deepest = depth > deepest ? depth : deepest;
    if (depth > kPromised) {
      std::fprintf(stderr, "%s: %zu bytes of stack, wanted at most %zu\n", symbol.c_str(), depth, kPromised);
      ++wrong;
    }
    if (count > 1) std::printf("%7zu %s\n", depth, symbol.c_str());
  }
  std::printf("%zu symbols on %zu bytes of stack, the deepest call took %zu, %d wrong\n", table.symbols(), bytes,
              deepest, wrong);
  return wrong == 0 ? 0 : 1;
}
