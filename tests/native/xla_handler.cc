// SPDX-License-Identifier: Apache-2.0
// Calls XLA's handlers as a runtime would, with every symbol, as it should be and damaged in every way: a call runs or
// answers an error, and no byte outside of its buffers changes. Under AddressSanitizer none is read either.
#include "xla/handler.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "baracuda_kernels.h"
#include "xla/ffi.h"
#include "xla/layout.h"
#include "xla/symbols.h"

namespace {

using namespace baracuda::xla;

constexpr size_t kGuard = 64;
constexpr unsigned char kCanary = 0xA5;

std::mt19937 generator;

uint32_t draw(uint32_t below) { return static_cast<uint32_t>(generator() % below); }

#define REQUIRE(condition)                                                          \
  do {                                                                              \
    if (!(condition)) {                                                             \
      fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, about.c_str()); \
      exit(1);                                                                      \
    }                                                                               \
  } while (false)

std::string about;       // the symbol and the damage
std::string last_error;  // what the handler told the runtime

Error* create_error(ErrorCreateArguments* arguments) {
  REQUIRE(arguments->errc != 0 && strlen(arguments->message) > 0);
  last_error = arguments->message;
  return reinterpret_cast<Error*>(&last_error);
}

Error* get_stream(StreamGetArguments* arguments) {
  arguments->stream = nullptr;
  return nullptr;
}

// A tensor with guards around its elements.
struct Memory {
  int dtype = 0;
  std::vector<int64_t> dims;
  size_t bytes = 0;
  std::unique_ptr<unsigned char[]> block;
  Buffer buffer{};

  void make(int type, size_t width, std::vector<int64_t> extents) {
    dtype = type;
    dims = std::move(extents);
    bytes = width;
    for (int64_t extent : dims) bytes *= static_cast<size_t>(extent);
    // No byte behind the guard, so that AddressSanitizer watches from there on.
    block.reset(new unsigned char[bytes + 2 * kGuard]);
    memset(block.get(), kCanary, bytes + 2 * kGuard);
    // A workspace may hold anything.
    for (size_t i = 0; i < bytes && i < 4096; ++i) block[kGuard + i] = static_cast<unsigned char>(draw(3));
    buffer = {sizeof(Buffer), nullptr, dtype, bytes == 0 ? nullptr : block.get() + kGuard,
              static_cast<int64_t>(dims.size()), dims.data()};
  }

  bool is_whole() const {
    for (size_t i = 0; i < kGuard; ++i) {
      if (block[i] != kCanary || block[kGuard + bytes + i] != kCanary) return false;
    }
    return true;
  }
};

// What a program says of a call: the attributes and, where it is as it should be, tensors of the right sizes.
struct Call {
  std::string symbol;
  std::vector<unsigned char> arguments;
  std::vector<Memory> operands, results;
  bool has_workspace = true;
};

bool begins(const std::string& text, const char* prefix) { return text.rfind(prefix, 0) == 0; }

template <typename T>
void append(std::vector<unsigned char>* bytes, const std::vector<T>& values) {
  const size_t at = bytes->size();
  const size_t length = values.size() * sizeof(T);
  bytes->resize(at + (length + 7) / 8 * 8);
  if (length > 0) memcpy(bytes->data() + at, values.data(), length);
}

template <typename T>
void put(std::vector<unsigned char>* bytes, size_t at, T value) {
  memcpy(bytes->data() + at, &value, sizeof value);
}

// A problem of an operator that it does: extents of 2 and 3 and so on, whatever they are called.
Call right_call(const Symbol& symbol) {
  const Layout& layout = *symbol.layout;
  Call call;
  call.symbol = symbol.name;
  const std::string& name = call.symbol;
  call.arguments.assign(static_cast<size_t>((layout.bytes + 7) / 8 * 8), 0);
  const bool is_pad = begins(name, "pad_");
  const bool is_wide = is_pad || begins(name, "segment_csr") || begins(name, "segment_ex") || begins(name, "dequant") ||
                       begins(name, "bincount");
  const bool is_backward = name.find("_backward") != std::string::npos;
  if (is_pad) {
    // One axis of 3, of which 5 are made: 1 before and 1 behind.
    put<int64_t>(&call.arguments, 0, is_backward ? 3 : 5);
    put<int32_t>(&call.arguments, 8, 1);
    const bool has_output_shape = layout.num_arrays == 5;
    append<int32_t>(&call.arguments, {3});
    if (has_output_shape) append<int32_t>(&call.arguments, {5});
    append<int32_t>(&call.arguments, {1});
    append<int64_t>(&call.arguments, {1});
    append<int64_t>(&call.arguments, {1});
  } else if (begins(name, "dequant")) {
    put<int64_t>(&call.arguments, 0, 6);
    put<int32_t>(&call.arguments, 16, 1);
    append<int32_t>(&call.arguments, {2, 3, 1, 1});
  } else if (begins(name, "cum") || begins(name, "logcumsumexp")) {
    for (size_t at = 0; at < 24; at += 8) put<int64_t>(&call.arguments, at, 2);
    put<int32_t>(&call.arguments, 24, static_cast<int32_t>(draw(2)));
  } else if (begins(name, "index_copy")) {
    for (size_t at = 0; at < 32; at += 8) put<int64_t>(&call.arguments, at, 2);
  } else if (begins(name, "bincount_rows")) {
    for (size_t at = 0; at < 16; at += 8) put<int64_t>(&call.arguments, at, 2);
    put<int32_t>(&call.arguments, 16, 2);
  } else if (begins(name, "histc")) {
    // Bounds that are equal: the elements' own.
    for (size_t at = 0; at < 16; at += 8) put<int64_t>(&call.arguments, at, 2);
  } else if (begins(name, "kthvalue") || begins(name, "median") || begins(name, "nanmedian") || begins(name, "mode") ||
             begins(name, "value_selecting")) {
    for (size_t at = 0; at < 24; at += 8) put<int64_t>(&call.arguments, at, 2);
    // Which of them.
    if (begins(name, "kthvalue")) put<int64_t>(&call.arguments, 24, 1 + static_cast<int64_t>(draw(2)));
  } else if (begins(name, "embedding_bag")) {
    put<int64_t>(&call.arguments, 0, 2);
    for (size_t at = 8; at < 20; at += 4) put<int32_t>(&call.arguments, at, 2);
    // Whether sums are means, have weights, and say which bags there are or are divided by counts.
    if (begins(name, "embedding_bag_f") || begins(name, "embedding_bag_bf") || begins(name, "embedding_bag_i") ||
        begins(name, "embedding_bag_backward")) {
      for (size_t at = 20; at < 32; at += 4) put<int32_t>(&call.arguments, at, static_cast<int32_t>(draw(2)));
    }
  } else if (is_wide) {
    put<int64_t>(&call.arguments, 0, 2);
    put<int32_t>(&call.arguments, 8, 3);
    // Of bincount whether it answers an extent.
    put<int32_t>(&call.arguments, 12, begins(name, "bincount") ? static_cast<int32_t>(draw(2)) : 2);
  } else {
    const bool has_flag = begins(name, "roi_align");
    const size_t first_pointer = static_cast<size_t>(layout.tensors[0].at);
    for (size_t at = 0; at + 4 <= first_pointer; at += 4) put<int32_t>(&call.arguments, at, 2);
    // Its flag, and two scales whose bits are numbers.
    if (begins(name, "interpolate_bilinear")) put<int32_t>(&call.arguments, 24, 1);
    if (begins(name, "avg_pool") || begins(name, "max_pool")) {
      // Paddings, which are at most half of a window, and the flag or a dilation behind them.
      for (size_t at = 56; at < 72; at += 4) put<int32_t>(&call.arguments, at, 1);
    }
    // Windows of one element, since no output may have more windows than places.
    if (begins(name, "fractional_max_pool")) {
      for (size_t at = 32; at < 44; at += 4) put<int32_t>(&call.arguments, at, 1);
    }
    // A flag behind the extents.
    if (begins(name, "ctc_loss_backward")) put<int32_t>(&call.arguments, 28, static_cast<int32_t>(draw(2)));
    // Whether it has a mask.
    if (begins(name, "deform_im2col")) put<int32_t>(&call.arguments, 60, static_cast<int32_t>(draw(2)));
    // Whether classes have weights.
    if (begins(name, "nll_loss") || begins(name, "cross_entropy")) {
      put<int32_t>(&call.arguments, 12, static_cast<int32_t>(draw(2)));
    }
    const bool has_levels = begins(name, "roi_align_levels");
    const size_t flag_at = has_levels ? 56 : begins(name, "roi_align_3d") ? 44 : 36;
    if (has_flag) put<int32_t>(&call.arguments, flag_at, 0);
    if (has_levels) {
      append<int32_t>(&call.arguments, {2, 2});
      append<int32_t>(&call.arguments, {2, 2});
      append<float>(&call.arguments, {1, 1});
    }
  }
  if (layout.options.at >= 0) {
    std::vector<unsigned char> options(static_cast<size_t>(layout.options.bytes), 0);
    put<size_t>(&options, 0, static_cast<size_t>(layout.options.bytes));
    if (begins(name, "segment_ex")) {
      // Those that integers have, too.
      const int32_t reductions[] = {0, 2, 3, 4, 6, 7};
      put<int32_t>(&options, 8, reductions[draw(6)]);
    }
    // Options of numbers alone are right as zeros.
    if (layout.options.value_at >= 0) {
      const bool has_value = is_pad ? !is_backward : true;
      put<uint64_t>(&options, static_cast<size_t>(layout.options.value_at), has_value ? 1 : 0);
    }
    append(&call.arguments, options);
    append<uint64_t>(&call.arguments, {0, 0});
  }
  for (int i = 0; i < layout.num_tensors; ++i) {
    const Tensor& tensor = layout.tensors[i];
    const Element element = element_of(symbol, tensor);
    if (tensor.extents[0].kind == kRowsOfArg) {
      int32_t reduction;
      memcpy(&reduction, call.arguments.data() + (layout.bytes + 7) / 8 * 8 + 8, sizeof reduction);
      if (reduction < 6) continue;
    }
    bool is_there = true;
    for (int axis = 0; axis < tensor.rank; ++axis) {
      if (tensor.extents[axis].kind != kWhether) continue;
      int32_t flag;
      memcpy(&flag, call.arguments.data() + tensor.extents[axis].at, sizeof flag);
      is_there = is_there && flag != 0;
    }
    if (!is_there) continue;
    // Two maps.
    const Extent& last = tensor.extents[tensor.rank > 0 ? tensor.rank - 1 : 0];
    if (last.kind == kIfEntry && last.other > 1) continue;
    const int any[17] = {0, kU8, kS16, 0, kF32, 0, 0, 0, kF64, 0, 0, 0, 0, 0, 0, 0, kC128};
    Memory memory;
    // More than any of these problems has: a right call needs no exact shape.
    memory.make(element.dtype != 0 ? element.dtype : any[element.bytes], element.bytes, {8, 16});
    (tensor.is_output ? call.results : call.operands).push_back(std::move(memory));
  }
  Memory workspace;
  workspace.make(kU8, 1, {1 << 18});
  // On a boundary of 16, as XLA's own memory is.
  workspace.buffer.data = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(workspace.buffer.data) + 15) / 16 * 16);
  workspace.dims[0] -= 16;
  call.results.push_back(std::move(workspace));
  return call;
}

// Runs a call and answers whether the handler took it.
bool ran(Call* call, int32_t stage = kExecuteStage, int symbol_type = kStringAttribute, int arguments_dtype = kU8) {
  Api api{};
  api.create_error = create_error;
  api.get_stream = get_stream;
  std::vector<int> types(16, kBuffer);
  std::vector<Buffer*> operands, results;
  for (Memory& each : call->operands) operands.push_back(&each.buffer);
  for (Memory& each : call->results) results.push_back(&each.buffer);
  // Copies of exact lengths, so that a read behind them is seen.
  std::unique_ptr<char[]> symbol(new char[call->symbol.size()]);
  memcpy(symbol.get(), call->symbol.data(), call->symbol.size());
  std::unique_ptr<unsigned char[]> arguments(new unsigned char[call->arguments.size()]);
  memcpy(arguments.get(), call->arguments.data(), call->arguments.size());
  Bytes text = {symbol.get(), call->symbol.size()};
  Array array = {arguments_dtype, call->arguments.size(), arguments.get()};
  Bytes first = {"arguments", 9}, second = {"symbol", 6};
  Bytes* names[] = {&first, &second};
  int attribute_types[] = {kArrayAttribute, symbol_type};
  void* attributes[] = {&array, &text};
  CallFrame frame{};
  frame.struct_size = sizeof frame;
  frame.api = &api;
  frame.stage = stage;
  frame.args = {sizeof(Buffers), nullptr, static_cast<int64_t>(operands.size()), types.data(), operands.data()};
  frame.rets = {sizeof(Buffers), nullptr, static_cast<int64_t>(results.size()), types.data(), results.data()};
  frame.attrs = {sizeof(Attributes), nullptr, 2, attribute_types, names, attributes};
  last_error.clear();
  const bool has_run = baracuda_xla_cpu(&frame) == nullptr;
  for (const Memory& each : call->operands) REQUIRE(each.is_whole());
  for (const Memory& each : call->results) REQUIRE(each.is_whole());
  return has_run;
}

void resize(Memory* memory, uint32_t most) {
  static const int kDtypes[] = {kU8, kS8, kF16, kBF16, kS16, kF32, kS32, kF64, kS64, kC128, 30, 0, -1};
  static const size_t kBytes[] = {1, 1, 2, 2, 2, 4, 4, 8, 8, 16, 1, 1, 1};
  if (draw(3) == 0) {
    const uint32_t kind = draw(13);
    memory->make(kDtypes[kind], kBytes[kind], {draw(most), draw(most)});
  } else {
    size_t width = 1;
    for (int i = 0; i < 13; ++i) width = kDtypes[i] == memory->dtype ? kBytes[i] : width;
    memory->make(memory->dtype, width, {draw(most), draw(4)});
  }
}

// What damaged fields hold.
const int64_t kNumbers[] = {-1, 0, 1, 2, 3, 7, 8, 9, 255, 65536, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN};

// Every word of the arguments in turn, and each half of it, with every one of these numbers.
int damage_every_field(const Symbol& symbol) {
  Call call = right_call(symbol);
  const std::vector<unsigned char> right = call.arguments;
  int refused = 0;
  for (size_t at = 0; at < right.size(); at += 4) {
    for (const int64_t number : kNumbers) {
      for (const bool is_word : {false, true}) {
        if (is_word ? at % 8 != 0 : static_cast<int32_t>(number) != number) continue;
        if (is_word) {
          put<int64_t>(&call.arguments, at, number);
        } else {
          put<int32_t>(&call.arguments, at, static_cast<int32_t>(number));
        }
        about = std::string(symbol.name) + ", " + std::to_string(number) + " at " + std::to_string(at);
        if (!ran(&call)) ++refused;
        call.arguments = right;
      }
    }
  }
  return refused;
}

// Breaks one thing, and answers what.
std::string damage(Call* call) {
  const uint32_t kind = draw(7);
  switch (kind) {
    case 0: {
      const size_t at = draw(static_cast<uint32_t>(call->arguments.size()));
      call->arguments[at] = static_cast<unsigned char>(draw(256));
      return "byte " + std::to_string(at);
    }
    case 1: {
      const size_t at = draw(static_cast<uint32_t>(call->arguments.size() / 4 - 1)) * 4;
      put<int32_t>(&call->arguments, at, static_cast<int32_t>(kNumbers[draw(14)]));
      return "int32 " + std::to_string(at);
    }
    case 2: {
      const size_t at = draw(static_cast<uint32_t>(call->arguments.size() / 8)) * 8;
      put<int64_t>(&call->arguments, at, kNumbers[draw(14)]);
      return "int64 " + std::to_string(at);
    }
    case 3: {
      const size_t length = draw(2) == 0 ? draw(2000) : call->arguments.size() + draw(17) - 8;
      call->arguments.resize(length > 0 ? length : 1);
      return "length";
    }
    case 4: {
      std::vector<Memory>& side = draw(2) == 0 ? call->operands : call->results;
      if (!side.empty()) resize(&side[draw(static_cast<uint32_t>(side.size()))], 9);
      return "a buffer";
    }
    case 5: {
      std::vector<Memory>& side = draw(2) == 0 ? call->operands : call->results;
      if (draw(2) == 0 && !side.empty()) {
        side.pop_back();
      } else {
        side.emplace_back();
        side.back().make(kF32, 4, {draw(9)});
      }
      return "the number of buffers";
    }
    default: {
      const size_t at = draw(static_cast<uint32_t>(call->symbol.size()));
      if (draw(2) == 0) {
        call->symbol[at] = static_cast<char>(draw(256));
      } else {
        call->symbol.resize(at);
      }
      return "the symbol";
    }
  }
}

void test_metadata() {
  for (int minor = -1; minor < 10; ++minor) {
    about = "metadata for minor version " + std::to_string(minor);
    Api api{};
    api.api_version.minor_version = minor;
    struct {
      Metadata metadata;
      unsigned char guard[kGuard];
    } answer;
    memset(&answer, kCanary, sizeof answer);
    MetadataExtension extension{{sizeof(MetadataExtension), kMetadataExtension, nullptr}, &answer.metadata};
    CallFrame frame{};
    frame.extension_start = &extension.extension_base;
    // The oldest runtimes give no table of functions with this question.
    frame.api = minor < 0 ? nullptr : &api;
    REQUIRE(baracuda_xla_cuda(&frame) == nullptr);
    const int wanted = minor < 0 ? kOldestMinor : minor < kNewestMinor ? minor : kNewestMinor;
    REQUIRE(answer.metadata.api_version.major_version == 0);
    REQUIRE(answer.metadata.api_version.minor_version == wanted);
    REQUIRE(answer.metadata.traits == kCommandBufferCompatible);
    for (unsigned char each : answer.guard) REQUIRE(each == kCanary);
    REQUIRE(baracuda_xla_cpu(&frame) == nullptr && answer.metadata.traits == 0);
    answer.metadata.traits = kCommandBufferCompatible;
    REQUIRE(baracuda_xla_cuda_own_scratch(&frame) == nullptr && answer.metadata.traits == 0);
  }
}

void test_attachment(void* cpu) {
  about = "attachment";
  REQUIRE(baracuda_xla_attach(0, nullptr) != nullptr);
  REQUIRE(baracuda_xla_attach(2, cpu) != nullptr);
  REQUIRE(strstr(baracuda_xla_attach(1, cpu), "another backend") != nullptr);
  REQUIRE(strstr(baracuda_xla_attach(0, dlopen("libc.so.6", RTLD_NOW)), "no baracuda_kernels library") != nullptr);
  Call call = right_call(kSymbols[0]);
  REQUIRE(!ran(&call) && last_error.find("cpu library is not loaded") != std::string::npos);
  REQUIRE(baracuda_xla_attach(0, cpu) == nullptr);
}

}  // namespace

int main(int count, char** arguments) {
  const unsigned seed = count > 1 ? static_cast<unsigned>(atoi(arguments[1])) : std::random_device()();
  printf("seed %u\n", seed);
  generator.seed(seed);
  // The one that this program is linked with.
  baracuda_kernels_version();
  test_metadata();
  test_attachment(dlopen("libbaracuda_kernels_cpu.so", RTLD_NOW));
  int refused = 0;
  for (const Symbol& symbol : kSymbols) {
    about = symbol.name;
    Call call = right_call(symbol);
    const bool has_run = ran(&call);
    if (!has_run) fprintf(stderr, "%s\n", last_error.c_str());
    REQUIRE(has_run);
    // A name ends where it says, not at a zero.
    Call longer = right_call(symbol);
    longer.symbol += std::string(1, '\0') + "x";
    REQUIRE(!ran(&longer));
    REQUIRE(!ran(&call, 0));
    REQUIRE(!ran(&call, kExecuteStage, kArrayAttribute));
    REQUIRE(!ran(&call, kExecuteStage, kStringAttribute, kS8));
    const int refused_fields = damage_every_field(symbol);
    // Eleven of an operator with one extent.
    REQUIRE(refused_fields >= 11);
    refused += refused_fields;
    for (int i = 0; i < 60; ++i) {
      Call broken = right_call(symbol);
      about = std::string(symbol.name) + ", damaged: " + damage(&broken);
      if (!ran(&broken)) ++refused;
    }
  }
  about = "damaged calls";
  REQUIRE(refused > static_cast<int>(sizeof(kSymbols) / sizeof(kSymbols[0])) * 50);
  printf("%d damaged calls were refused\n", refused);
  return 0;
}
