// SPDX-License-Identifier: Apache-2.0
// With a workspace given, no operator allocates: this program's own malloc family counts every request made while an
// operator runs, from its threads too. Symbols of the executable come before glibc's, so the library calls these.
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "calls.h"

// glibc's own names of its allocator.
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
void __libc_free(void*);
}

namespace {
std::atomic<bool> counting{false};
std::atomic<long> requests{0};
void count() {
  if (counting.load(std::memory_order_relaxed)) requests.fetch_add(1, std::memory_order_relaxed);
}
}  // namespace

extern "C" {
void* malloc(size_t bytes) { return count(), __libc_malloc(bytes); }
void* calloc(size_t items, size_t bytes) { return count(), __libc_calloc(items, bytes); }
void* realloc(void* pointer, size_t bytes) { return count(), __libc_realloc(pointer, bytes); }
void* memalign(size_t alignment, size_t bytes) { return count(), __libc_memalign(alignment, bytes); }
void* aligned_alloc(size_t alignment, size_t bytes) { return count(), __libc_memalign(alignment, bytes); }
int posix_memalign(void** pointer, size_t alignment, size_t bytes) {
  count();
  *pointer = __libc_memalign(alignment, bytes);
  return *pointer == nullptr ? ENOMEM : 0;
}
void free(void* pointer) { __libc_free(pointer); }
}

namespace {

// Requests made while one call runs; -1 if it failed.
long requests_of(const calls::Call& call, void* const* pointers, void* workspace, size_t workspace_bytes) {
  requests = 0;
  counting = true;
  const int32_t status = call.run(pointers, workspace, workspace_bytes);
  counting = false;
  if (status == 0) return requests;
  std::fprintf(stderr, "%s: %s\n", call.symbol.c_str(), baracuda_kernels_last_error());
  return -1;
}

}  // namespace

int main() {
  counting = true;
  // Through volatile pointers: a compiler may leave out an allocation that nobody sees.
  void* volatile by_malloc = std::malloc(1);
  std::free(by_malloc);
  void* volatile by_new = ::operator new(1);
  ::operator delete(by_new);
  counting = false;
  if (requests != 2) {
    std::fprintf(stderr, "the hook counted %ld requests, wanted 2\n", requests.load());
    return 1;
  }
  const calls::Table table;
  int wrong = 0;
  long with_own_scratch = 0;
  for (const calls::Call& call : table.calls()) {
    std::vector<void*> pointers;
    for (const calls::Tensor& tensor : call.tensors) pointers.push_back(std::calloc(tensor.bytes() + 1, 1));
    void* workspace = std::aligned_alloc(16, (call.workspace_bytes + 16) / 16 * 16);
    // The first call of the process starts the thread pool.
    call.run(pointers.data(), workspace, call.workspace_bytes);
    const long with_workspace = requests_of(call, pointers.data(), workspace, call.workspace_bytes);
    if (with_workspace != 0) {
      std::fprintf(stderr, "%s: %ld requests with a workspace of %zu bytes\n", call.symbol.c_str(), with_workspace,
                   call.workspace_bytes);
      ++wrong;
    }
    const long own = requests_of(call, pointers.data(), nullptr, 0);
    if (own > 1) {
      std::fprintf(stderr, "%s: %ld requests without a workspace, wanted at most its scratch\n", call.symbol.c_str(),
                   own);
      ++wrong;
    }
    with_own_scratch += own;
    std::free(workspace);
    for (void* pointer : pointers) std::free(pointer);
  }
  // Or the hook would see nothing of the library.
  if (with_own_scratch == 0) ++wrong;
  std::printf("%zu calls, %ld scratch requests without a workspace, %d wrong\n", table.calls().size(), with_own_scratch,
              wrong);
  return wrong == 0 ? 0 : 1;
}
