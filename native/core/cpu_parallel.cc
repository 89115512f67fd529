// SPDX-License-Identifier: Apache-2.0
// The CPU thread pool. Our own instead of OpenMP because a child forked from a process that used OpenMP hangs, and a
// second OpenMP runtime beside a framework's slows both.
#include "core/cpu_parallel.h"

#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "core/backend.h"
#include "core/cpu_interrupt.h"
#include "core/float_environment.h"
#include "core/integer_math.h"

namespace baracuda {
namespace {

constexpr int kMaxThreads = 256;
// Parts per thread: enough to even out unequal tasks, few enough that claiming one (an atomic add) is free.
constexpr int64_t kPartsPerThread = 8;
// A worker spins this often before it sleeps: some 20 us, longer than the gap between two calls in a loop.
constexpr int kSpins = 4000;
// A worker's stack, whatever the process's default is: its scratch, what a call may need of any thread (32 KiB), and
// what the C library and the application keep there. Pages that nobody touches cost nothing.
constexpr size_t kWorkerStack = size_t{1} << 20;

// Workers of larger pools stay where they are: to move them costs a system call for each, and among many processors
// some share a cache.
constexpr int kMostMoved = 7;

thread_local void* scratch_of_thread = nullptr;

// The number that BARACUDA_NUM_THREADS spells in digits alone, kMaxThreads at most; 0 for any other text and for none.
int threads_asked_for() {
  const char* digit = std::getenv("BARACUDA_NUM_THREADS");
  if (digit == nullptr) return 0;
  int number = 0;
  for (; *digit != '\0'; ++digit) {
    if (*digit < '0' || *digit > '9') return 0;
    number = number * 10 + (*digit - '0');
    if (number > kMaxThreads) number = kMaxThreads;
  }
  return number;
}

int wanted_threads() {
  const int asked_for = threads_asked_for();
  if (asked_for >= 1) return asked_for;
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
  int64_t step;  // how much of a part is done between two looks at whether the job was stopped
};

// How many forks lie between this process and the one that loaded the library.
std::atomic<uint64_t> forks{0};

class Pool {
 public:
  explicit Pool(int threads) {
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes) != 0) return;
    pthread_attr_setstacksize(&attributes, kWorkerStack);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    for (int i = 1; i < threads; ++i) {
      pthread_t thread;
      if (pthread_create(&thread, &attributes, begin_work, this) != 0) break;  // fewer threads give the same bits
      if (workers_ < kMostMoved) handles_[workers_] = thread;
      ++workers_;
    }
    pthread_attr_destroy(&attributes);
  }

  int threads() const { return workers_ + 1; }

  // Whether the job was done to its end; not if the caller's check stopped it, or forked and this is the child.
  bool run(const Job& job, bool may_stop) {
    const uint64_t born = forks.load(std::memory_order_relaxed);
    make_room();
    {
      std::lock_guard<std::mutex> lock(mutex_);
      job_ = job;
      next_.store(0, std::memory_order_relaxed);
      stopped_.store(false, std::memory_order_relaxed);
      open_ = true;
      generation_.fetch_add(1, std::memory_order_release);
    }
    pthread_cond_broadcast(&wake_);
    take_parts(job, may_stop);
    // The child of a check that forked has neither the workers nor, perhaps, the mutex.
    if (forks.load(std::memory_order_relaxed) != born) return false;
    {
      // Only those who have begun are waited for: on a busy machine a worker can take a millisecond to wake.
      std::lock_guard<std::mutex> lock(mutex_);
      open_ = false;
    }
    for (int spin = 0; busy_.load(std::memory_order_acquire) != 0; ++spin) {
      if (spin < kSpins) {
        pause_briefly();
        continue;
      }
      std::this_thread::yield();
      if (may_stop && is_stopped_by_check()) {
        if (forks.load(std::memory_order_relaxed) != born) return false;
        may_stop = false;
      }
    }
    return !stopped_.load(std::memory_order_relaxed);
  }

 private:
  // Keeps the workers of a small pool off the processor that the caller is on, among those that the caller may use.
  // Linux wakes a thread on the processor of the one that wakes it where no idle processor shares that one's cache, as
  // in virtual machines, and takes milliseconds to move it: most calls would be over.
  void make_room() {
    const int here = sched_getcpu();
    if (here == callers_ || workers_ > kMostMoved) return;
    callers_ = here;
    cpu_set_t others;
    if (here < 0 || here >= CPU_SETSIZE || sched_getaffinity(0, sizeof others, &others) != 0) return;
    CPU_CLR(here, &others);
    if (CPU_COUNT(&others) == 0) return;
    for (int i = 0; i < workers_; ++i) pthread_setaffinity_np(handles_[i], sizeof others, &others);
  }

  // `asks`: on the calling thread, if it has a check.
  void take_parts(const Job& job, bool asks) {
    for (;;) {
      int64_t at = next_.fetch_add(job.part, std::memory_order_relaxed);
      if (at >= job.count) return;
      const int64_t end = job.part < job.count - at ? at + job.part : job.count;
      while (at < end) {
        const int64_t until = job.step < end - at ? at + job.step : end;
        job.body(job.context, at, until);
        at = until;
        if (stopped_.load(std::memory_order_relaxed) || (asks && is_stopped_by_check())) return;
      }
    }
  }

  // Asks the caller's check. A check that forked stops the job in the child, whose workers are gone.
  bool is_stopped_by_check() {
    const uint64_t born = forks.load(std::memory_order_relaxed);
    if (!is_interrupted() && forks.load(std::memory_order_relaxed) == born) return false;
    stopped_.store(true, std::memory_order_relaxed);
    return true;
  }

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wframe-larger-than="  // on a stack that has room for it
  static void* begin_work(void* pool) {
    alignas(kScratchAlignment) char scratch[kWorkerScratch];
    scratch_of_thread = scratch;
    static_cast<Pool*>(pool)->work();
    return nullptr;
  }
#pragma GCC diagnostic pop

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
      take_parts(job, false);
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
  std::atomic<bool> stopped_{false};  // whether what is left of job_ is to be left undone
  std::atomic<uint64_t> generation_{0};
  int workers_ = 0;
  int callers_ = -1;  // the processor that the workers were told to keep off
  pthread_t handles_[kMostMoved] = {};
};

// The pool is built on first use, never destroyed (joining threads at exit can hang), and forgotten in a forked child,
// where its threads do not exist. No lock is held while it is built, only pool_taken, which the child resets.
std::atomic<Pool*> pool{nullptr};
std::atomic<bool> pool_taken{false};

void forget_pool() {
  forks.fetch_add(1, std::memory_order_relaxed);
  pool.store(nullptr, std::memory_order_relaxed);
  pool_taken.store(false, std::memory_order_relaxed);
}

// As the library is loaded, before any thread can call it: a static inside a function has a guard, which is a lock that
// a child could find taken.
[[maybe_unused]] const int forget_pool_is_registered = pthread_atfork(nullptr, nullptr, forget_pool);

// Called by the holder of pool_taken alone.
Pool& get_pool() {
  Pool* existing = pool.load(std::memory_order_acquire);
  if (existing != nullptr) return *existing;
  existing = new Pool(wanted_threads());
  pool.store(existing, std::memory_order_release);
  return *existing;
}

// All of a job on the calling thread.
void run_alone(int64_t count, int64_t step, void (*body)(void*, int64_t, int64_t), void* context) {
  for (int64_t at = 0; at < count;) {
    const int64_t until = step < count - at ? at + step : count;
    body(context, at, until);
    at = until;
    if (at < count && is_interrupted()) throw Interrupted{};
  }
}

}  // namespace

int32_t cpu_threads() {
  const Pool* existing = pool.load(std::memory_order_acquire);
  return existing != nullptr ? existing->threads() : wanted_threads();
}

void* worker_scratch() { return scratch_of_thread; }

void parallel_ranges(int64_t count, int64_t grain, void (*body)(void*, int64_t, int64_t), void* context) {
  if (count <= 0) return;
  // One pool, one user at a time: a second calling thread does its own work, which costs no waiting and no threads.
  if (count <= grain || Pool::in_pool()) {
    body(context, 0, count);
    return;
  }
  const bool may_stop = has_interrupt_check();
  if (pool_taken.exchange(true, std::memory_order_acquire)) {
    run_alone(count, may_stop ? grain : count, body, context);
    return;
  }
  Pool& threads = get_pool();
  if (threads.threads() == 1) {
    pool_taken.store(false, std::memory_order_release);
    run_alone(count, may_stop ? grain : count, body, context);
    return;
  }
  const int64_t even = ceil_div(count, threads.threads() * kPartsPerThread);
  const int64_t part = even > grain ? even : grain;
  Pool::in_pool() = true;
  const bool is_done = threads.run({body, context, count, part, may_stop ? grain : part}, may_stop);
  Pool::in_pool() = false;
  pool_taken.store(false, std::memory_order_release);
  if (!is_done) throw Interrupted{};
}

}  // namespace baracuda
