// SPDX-License-Identifier: Apache-2.0
// The CPU thread pool. Our own instead of OpenMP because a child forked from a process that used OpenMP hangs, and a
// second OpenMP runtime beside a framework's slows both.
#include "core/cpu_parallel.h"

#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <system_error>
#include <thread>

#include "core/cpu_float_environment.h"

namespace baracuda {
namespace {

constexpr int kMaxThreads = 256;
// Parts per thread: enough to even out unequal tasks, few enough that claiming one (an atomic add) is free.
constexpr int64_t kPartsPerThread = 8;
// A worker spins this often before it sleeps: some 20 us, longer than the gap between two calls in a loop.
constexpr int kSpins = 4000;

int wanted_threads() {
  if (const char* text = std::getenv("BARACUDA_NUM_THREADS")) {
    const long wanted = std::strtol(text, nullptr, 10);
    if (wanted >= 1) return wanted < kMaxThreads ? static_cast<int>(wanted) : kMaxThreads;
  }
  cpu_set_t set;
  CPU_ZERO(&set);
  const int allowed = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  return allowed < kMaxThreads ? (allowed > 0 ? allowed : 1) : kMaxThreads;
}

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

struct Job {
  void (*body)(void*, int64_t, int64_t);
  void* context;
  int64_t count;
  int64_t part;
};

class Pool {
 public:
  explicit Pool(int threads) {
    for (int i = 1; i < threads; ++i) {
      try {
        std::thread([this] { work(); }).detach();
        ++workers_;
      } catch (const std::system_error&) {
        break;  // fewer threads give the same bits
      }
    }
  }

  int threads() const { return workers_ + 1; }

  void run(const Job& job) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      job_ = job;
      next_.store(0, std::memory_order_relaxed);
      open_ = true;
      generation_.fetch_add(1, std::memory_order_release);
    }
    pthread_cond_broadcast(&wake_);
    take_parts(job);
    {
      // Only those who have begun are waited for: on a busy machine a worker can take a millisecond to wake.
      std::lock_guard<std::mutex> lock(mutex_);
      open_ = false;
    }
    for (int spin = 0; busy_.load(std::memory_order_acquire) != 0; ++spin) {
      spin < kSpins ? pause_briefly() : std::this_thread::yield();
    }
  }

 private:
  void take_parts(const Job& job) {
    for (;;) {
      const int64_t begin = next_.fetch_add(job.part, std::memory_order_relaxed);
      if (begin >= job.count) return;
      const int64_t end = job.part < job.count - begin ? begin + job.part : job.count;
      job.body(job.context, begin, end);
    }
  }

  void work() {
    const ScopedFloatEnvironment environment;
    in_pool() = true;
    uint64_t seen = 0;
    for (;;) {
      for (int spin = 0; spin < kSpins && generation_.load(std::memory_order_acquire) == seen; ++spin) pause_briefly();
      Job job;
      {
        std::unique_lock<std::mutex> lock(mutex_);
        while (generation_.load(std::memory_order_relaxed) == seen) pthread_cond_wait(&wake_, mutex_.native_handle());
        seen = generation_.load(std::memory_order_relaxed);
        if (!open_) continue;
        job = job_;
        busy_.fetch_add(1, std::memory_order_relaxed);
      }
      take_parts(job);
      busy_.fetch_sub(1, std::memory_order_release);
    }
  }

 public:
  static bool& in_pool() {
    thread_local bool inside = false;
    return inside;
  }

 private:
  std::mutex mutex_;
  // Not std::condition_variable: with GCC 12 its wait() needs a C++ runtime that older distributions lack.
  pthread_cond_t wake_ = PTHREAD_COND_INITIALIZER;
  Job job_{};
  bool open_ = false;  // whether parts of job_ may still be taken; like job_, under mutex_
  std::atomic<int64_t> next_{0};
  std::atomic<int> busy_{0};  // workers that have begun on job_
  std::atomic<uint64_t> generation_{0};
  int workers_ = 0;
};

// The pool is built on first use, never destroyed (joining threads at exit can hang), and forgotten in a forked child,
// where its threads do not exist.
std::atomic<Pool*> pool{nullptr};
std::atomic<bool> pool_taken{false};

void forget_pool() {
  pool.store(nullptr, std::memory_order_relaxed);
  pool_taken.store(false, std::memory_order_relaxed);
}

// Called by the holder of pool_taken alone.
Pool& get_pool() {
  Pool* existing = pool.load(std::memory_order_acquire);
  if (existing != nullptr) return *existing;
  static const int registered = pthread_atfork(nullptr, nullptr, forget_pool);
  (void)registered;
  existing = new Pool(wanted_threads());
  pool.store(existing, std::memory_order_release);
  return *existing;
}

}  // namespace

void parallel_ranges(int64_t count, int64_t grain, void (*body)(void*, int64_t, int64_t), void* context) {
  if (count <= 0) return;
  // One pool, one user at a time: a second calling thread does its own work, which costs no waiting and no threads.
  if (count <= grain || Pool::in_pool() || pool_taken.exchange(true, std::memory_order_acquire)) {
    body(context, 0, count);
    return;
  }
  Pool& threads = get_pool();
  if (threads.threads() == 1) {
    body(context, 0, count);
  } else {
    const int64_t even = (count + threads.threads() * kPartsPerThread - 1) / (threads.threads() * kPartsPerThread);
    Pool::in_pool() = true;
    threads.run({body, context, count, even > grain ? even : grain});
    Pool::in_pool() = false;
  }
  pool_taken.store(false, std::memory_order_release);
}

}  // namespace baracuda
