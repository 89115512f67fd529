// SPDX-License-Identifier: Apache-2.0
// Every operator on bad data in buffers that end where their heap block ends. Anywhere it checks that each output byte
// is written and that given and own scratch agree; under the sanitizers (-DBARACUDA_SANITIZE=ON) a read or write out of
// bounds, an overflow or a bad conversion ends it.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "calls.h"

namespace {

using calls::Call;
using calls::Tensor;
using calls::Type;

// An exact heap block; malloc aligns it to 16 bytes.
struct Free {
  void operator()(void* pointer) const { std::free(pointer); }
};
using Block = std::unique_ptr<unsigned char, Free>;

Block block(size_t bytes, int fill) {
  Block made(static_cast<unsigned char*>(std::malloc(bytes)));
  if (bytes > 0) std::memset(made.get(), fill, bytes);
  return made;
}

// splitmix64, as in pybaracuda/_check/splitmix.py.
class Words {
 public:
  explicit Words(uint64_t seed) : state_(seed << 32) {}
  uint64_t next() {
    uint64_t x = (state_ += 0x9e3779b97f4a7c15u);
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
  }

 private:
  uint64_t state_;
};

// Extents, indices and coordinates on either side of what is valid, and far beyond it.
constexpr double kNumbers[] = {0.0,  -0.0,  0.5,  1.0,   -1.0,       -0.999,        1.999, 2.0,   3.0,  5.0,   7.0,
                               64.5, 1e-40, 1e30, -1e30, 2147483648, -2147483649.0, 1e38,  -1e38, 1e19, -1e19, 1048576};
constexpr int64_t kIntegers[] = {0,         1,         2,         3,         -1,              4,                     5,
                                 INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, int64_t{1} << 32, (int64_t{1} << 32) + 1,
                                 599};

uint16_t half_pattern(float value, bool bfloat) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  if (bfloat) return static_cast<uint16_t>(bits >> 16);
  // Good enough for test data: rebias the exponent, saturate, cut the significand.
  const int exponent = static_cast<int>(bits >> 23 & 0xff) - 127 + 15;
  const uint32_t sign = bits >> 16 & 0x8000u;
  if (exponent <= 0) return static_cast<uint16_t>(sign | 1u);
  if (exponent >= 31) return static_cast<uint16_t>(sign | 0x7c00u);
  return static_cast<uint16_t>(sign | static_cast<uint32_t>(exponent) << 10 | (bits >> 13 & 0x3ffu));
}

// Writes one element of a listed value or, now and then, of random bits (NaN payloads, infinities, subnormals).
void bad_element(unsigned char* at, Type type, Words& words) {
  const uint64_t two_words[] = {words.next(), words.next()};  // the widest element has 16 bytes
  const uint64_t word = two_words[0];
  const size_t size = calls::bytes_of(type);
  std::memcpy(at, two_words, size);
  if ((word >> 60) < 4) return;
  if (type == Type::i32 || type == Type::i64) {
    const int64_t value = kIntegers[word % (sizeof kIntegers / sizeof kIntegers[0])];
    std::memcpy(at, &value, size);  // little-endian: the low half of a value that i32 does not hold
  } else if (type == Type::f32 || type == Type::f64 || type == Type::f16 || type == Type::bf16) {
    const double number = kNumbers[word % (sizeof kNumbers / sizeof kNumbers[0])];
    const float single = static_cast<float>(number);
    const uint16_t pattern = half_pattern(single, type == Type::bf16);
    if (type == Type::f64) std::memcpy(at, &number, size);
    if (type == Type::f32) std::memcpy(at, &single, size);
    if (size == 2) std::memcpy(at, &pattern, size);
  }
}

// Runs one call into fresh exact blocks and answers its outputs' bytes one after the other; empty if it failed.
bool run_once(const Call& call, uint64_t seed, int fill, bool own_scratch, std::string* outputs) {
  std::vector<Block> blocks;
  std::vector<void*> pointers;
  Words words(seed);
  for (const Tensor& tensor : call.tensors) {
    blocks.push_back(block(tensor.bytes(), fill));
    if (!tensor.is_output) {
      const size_t size = calls::bytes_of(tensor.type);
      for (int64_t i = 0; i < tensor.elements; ++i) {
        bad_element(blocks.back().get() + static_cast<size_t>(i) * size, tensor.type, words);
      }
    }
    pointers.push_back(tensor.elements > 0 ? blocks.back().get() : nullptr);
  }
  const size_t workspace_bytes = own_scratch ? 0 : call.workspace_bytes;
  const Block workspace = block(workspace_bytes, fill);
  const int32_t status = call.run(pointers.data(), workspace_bytes > 0 ? workspace.get() : nullptr, workspace_bytes);
  if (status != 0) {
    std::fprintf(stderr, "%s: status %d: %s\n", call.symbol.c_str(), status, baracuda_kernels_last_error());
    return false;
  }
  outputs->clear();
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (call.tensors[i].is_output) {
      outputs->append(reinterpret_cast<const char*>(blocks[i].get()), call.tensors[i].bytes());
    }
  }
  return true;
}

}  // namespace

int main() {
  const calls::Table table;
  if (table.symbols() != BARACUDA_RUN_SYMBOLS) {
    std::fprintf(stderr, "tests/native/calls.h has %zu symbols, the header %d: add the missing operator\n",
                 table.symbols(), BARACUDA_RUN_SYMBOLS);
    return 1;
  }
  int wrong = 0, runs = 0;
  for (const Call& call : table.calls()) {
    for (uint64_t seed = 1; seed <= 3; ++seed) {
      std::string first, second, third;
      const bool ran = run_once(call, seed, 0xa5, false, &first) && run_once(call, seed, 0x5a, false, &second) &&
                       run_once(call, seed, 0xff, true, &third);
      runs += 3;
      if (!ran) {
        ++wrong;
      } else if (first != second || first != third) {
        std::fprintf(stderr, "%s: an output depends on what stood in memory before (tensors of", call.symbol.c_str());
        for (const Tensor& tensor : call.tensors) {
          std::fprintf(stderr, " %lld", static_cast<long long>(tensor.elements));
        }
        std::fprintf(stderr, " elements, seed %llu)\n", static_cast<unsigned long long>(seed));
        ++wrong;
      }
    }
  }
  std::printf("%zu symbols, %d runs, %d wrong\n", table.symbols(), runs, wrong);
  return wrong == 0 ? 0 : 1;
}
