// SPDX-License-Identifier: Apache-2.0
// Runs launches: fibers, the points where they meet, and what the library asks of a device (core/cuda_launch.cuh).
#include "device.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "core/cuda_launch.cuh"

// Saves the calling fiber's registers on its stack, stores the stack's pointer, and goes on with another's.
extern "C" void emulation_switch_stack(void** from, void* to);
asm(R"(
.text
.globl emulation_switch_stack
.hidden emulation_switch_stack
.type emulation_switch_stack, @function
emulation_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size emulation_switch_stack, .-emulation_switch_stack
)");

namespace emulation {

__thread Place threadIdx, blockIdx, blockDim, gridDim;

namespace {

constexpr int kMostThreads = 1024;
constexpr int kWarp = 32;
constexpr size_t kStackBytes = 256 << 10;
// As many as a block may have before compute capability 8.0, whose kernels are what is built.
constexpr int kSharedBytes = 64 << 10;
// What nobody has written yet.
constexpr int kPoison = 0xa5;

// Lanes of a mask that wait for each other. Two sets of words, by turns: a lane may come to the next meeting before all
// have read what was said at this one, but not to the one after.
struct WarpMeeting {
  uint32_t mask = 0;
  uint32_t arrived = 0;
  unsigned turn = 0;
  Told told[2] = {};
  int unread[2] = {};  // how many lanes have yet to hear what was said

  bool is_over() const { return arrived == 0 && unread[0] == 0 && unread[1] == 0; }
};

struct Block {
  char* stacks = nullptr;
  void* stack_pointers[kMostThreads];  // of the fibers that do not run
  void* scheduler = nullptr;  // its stack's pointer, while a fiber runs
  int running = 0, alive = 0;
  std::vector<int> ready;
  std::mt19937 order{std::random_device()()};
  void (*run)(const void*) = nullptr;
  const void* what = nullptr;

  int arrived = 0;
  unsigned turn = 0;
  Votes votes[2];
  std::vector<int> waiting;

  uint32_t alive_lanes[kMostThreads / kWarp];
  std::vector<WarpMeeting> meetings[kMostThreads / kWarp];

  alignas(128) unsigned char shared[kSharedBytes];
};

Block& block() {
  static thread_local Block* const found = new Block;  // outlives the thread's last call: a library's unloading is late
  return *found;
}

[[noreturn]] void stop(const char* why) {
  fprintf(stderr, "emulated kernel: %s\n", why);
  abort();
}

// Goes on with another thread; somebody has to put this one among the ready ones.
void wait() {
  Block& b = block();
  emulation_switch_stack(&b.stack_pointers[b.running], b.scheduler);
}

void complete_block_meeting(Block& b) {
  b.arrived = 0;
  ++b.turn;
  b.votes[b.turn % 2] = {false, true};
  b.ready.insert(b.ready.end(), b.waiting.begin(), b.waiting.end());
  b.waiting.clear();
}

bool is_complete(const Block& b, int warp, const WarpMeeting& meeting) {
  const uint32_t wanted = meeting.mask & b.alive_lanes[warp];
  return meeting.arrived != 0 && (meeting.arrived & wanted) == wanted;
}

// Wakes all but the calling lane.
void complete_warp_meeting(Block& b, int warp, WarpMeeting& meeting) {
  for (int other = 0; other < kWarp; ++other) {
    const int thread = warp * kWarp + other;
    if ((meeting.arrived >> other & 1) != 0 && thread != b.running) b.ready.push_back(thread);
  }
  meeting.told[meeting.turn % 2].lanes = meeting.arrived;
  meeting.unread[meeting.turn % 2] = __builtin_popcount(meeting.arrived);
  meeting.arrived = 0;
  ++meeting.turn;
}

[[noreturn]] void run_thread() {
  Block& b = block();
  b.run(b.what);
  const int warp = b.running / kWarp;
  --b.alive;
  b.alive_lanes[warp] &= ~(1u << b.running % kWarp);
  // Who has ended is no longer waited for.
  if (b.alive > 0 && b.arrived == b.alive) complete_block_meeting(b);
  for (WarpMeeting& meeting : b.meetings[warp]) {
    if (is_complete(b, warp, meeting)) complete_warp_meeting(b, warp, meeting);
  }
  wait();
  stop("a thread went on after its end");
}

void run_block(Block& b, int threads) {
  if (b.stacks == nullptr) {
    void* const memory = mmap(nullptr, kStackBytes * kMostThreads, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) stop("no memory for stacks");
    b.stacks = static_cast<char*>(memory);
  }
  b.alive = threads;
  b.arrived = 0;
  b.turn = 0;
  b.votes[0] = b.votes[1] = {false, true};
  b.waiting.clear();
  b.ready.clear();
  for (int warp = 0; warp * kWarp < threads; ++warp) {
    const int lanes = threads - warp * kWarp;
    b.alive_lanes[warp] = lanes >= kWarp ? ~0u : (1u << lanes) - 1;
    b.meetings[warp].clear();
  }
  for (int thread = 0; thread < threads; ++thread) {
    // What the switch pops: six registers and the address to return to, with the stack as a call would find it.
    void** top = reinterpret_cast<void**>(b.stacks + kStackBytes * static_cast<size_t>(thread + 1)) - 2;
    *top = reinterpret_cast<void*>(&run_thread);
    for (int i = 0; i < 6; ++i) *--top = nullptr;
    b.stack_pointers[thread] = top;
    b.ready.push_back(thread);
  }
  memset(b.shared, kPoison, sizeof b.shared);
  while (!b.ready.empty()) {
    const size_t chosen = b.order() % b.ready.size();
    b.running = b.ready[chosen];
    b.ready[chosen] = b.ready.back();
    b.ready.pop_back();
    threadIdx.x = static_cast<unsigned>(b.running);
    emulation_switch_stack(&b.scheduler, b.stack_pointers[b.running]);
  }
  if (b.alive != 0) stop("threads wait for some that never come");
}

}  // namespace

void* dynamic_shared_memory() { return block().shared; }

Votes meet_block(bool vote) {
  Block& b = block();
  Votes& votes = b.votes[b.turn % 2];
  votes.any = votes.any || vote;
  votes.all = votes.all && vote;
  if (++b.arrived == b.alive) {
    complete_block_meeting(b);
    return votes;
  }
  b.waiting.push_back(b.running);
  wait();
  return votes;
}

Told meet_warp(uint32_t mask, uint64_t word) {
  Block& b = block();
  const int warp = b.running / kWarp, own = b.running % kWarp;
  if ((mask >> own & 1) == 0) stop("a lane meets others without being in their mask");
  std::vector<WarpMeeting>& meetings = b.meetings[warp];
  size_t number = 0;
  while (number < meetings.size() && (meetings[number].mask != mask || meetings[number].is_over())) ++number;
  if (number == meetings.size()) {
    number = 0;
    while (number < meetings.size() && !meetings[number].is_over()) ++number;
    if (number == meetings.size()) meetings.emplace_back();
    meetings[number] = WarpMeeting();
    meetings[number].mask = mask;
  }
  const unsigned turn = meetings[number].turn % 2;
  meetings[number].told[turn].words[own] = word;
  meetings[number].arrived |= 1u << own;
  if (is_complete(b, warp, meetings[number])) {
    complete_warp_meeting(b, warp, meetings[number]);
  } else {
    wait();
  }
  WarpMeeting& meeting = meetings[number];
  const Told told = meeting.told[turn];
  --meeting.unread[turn];
  return told;
}

void launch(unsigned blocks, unsigned threads, size_t shared_bytes, void (*run)(const void*), const void* what) {
  Block& b = block();
  if (threads > kMostThreads || shared_bytes > kSharedBytes) stop("a launch that no device takes");
  b.run = run;
  b.what = what;
  gridDim = {blocks, 1, 1};
  blockDim = {threads, 1, 1};
  for (unsigned place = 0; place < blocks; ++place) {
    blockIdx = {place, 0, 0};
    run_block(b, static_cast<int>(threads));
  }
}

}  // namespace emulation

namespace baracuda {

Status cuda_failure(cudaError_t, const char* what) { return fail(Status::kInternal, "%s failed", what); }

Status current_device(int* device) {
  *device = 0;
  return Status::kOk;
}

// Few multiprocessors, so that small problems make kernels stride over their work.
Status device_traits(DeviceTraits* traits) {
  *traits = {3, 75, emulation::kSharedBytes};
  return Status::kOk;
}

}  // namespace baracuda
