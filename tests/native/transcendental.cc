// SPDX-License-Identifier: Apache-2.0
// The error bounds that core/transcendental.h states, against the C library in a wider type: f32 over every exponent
// (every single number if the argument is 1: the step between bit patterns), f64 at as many random numbers. The shorter
// forms of exp must give its bits where they stand for it.
#include "core/transcendental.h"

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>

namespace {

// The distance in units in the last place of T at the exact value.
template <typename T, typename Wide>
double error_in_units(T found, Wide exact) {
  if (std::isnan(exact)) return std::isnan(found) ? 0 : HUGE_VAL;
  const Wide largest = std::numeric_limits<T>::max();
  int exponent = 0;
  (void)std::frexp(std::fabs(exact) < largest ? exact : largest, &exponent);
  constexpr int kLowest = std::numeric_limits<T>::min_exponent;
  exponent = (exact != 0 && exponent > kLowest ? exponent : kLowest) - std::numeric_limits<T>::digits;
  const Wide unit = std::ldexp(Wide(1), exponent);
  // Infinity stands for the next number after the largest.
  const Wide bound = largest + unit;
  if (std::isinf(found) && std::fabs(exact) >= largest + unit / 2) return (found > 0) == (exact > 0) ? 0 : HUGE_VAL;
  const Wide value = std::isinf(found) ? (found > 0 ? bound : -bound) : Wide(found);
  return static_cast<double>(std::fabs(value - exact) / unit);
}

struct Worst {
  double error = 0, at = 0;
  template <typename T, typename Wide>
  void look(T x, T found, Wide exact) {
    const double seen = error_in_units(found, exact);
    if (seen > error) error = seen, at = static_cast<double>(x);
  }
  bool within(const char* name, double bound) const {
    std::printf("%s: at most %.3f units in the last place, at %a\n", name, error, at);
    return error <= bound;
  }
};

struct Shorter {
  double at = 0;
  long wrong = 0;
  template <typename T>
  void look(T x) {
    const T whole = baracuda::exp_of(x), below = baracuda::exp_of(-std::fabs(x)), decay = baracuda::decay_of(x);
    const bool near = std::fabs(x) <= 80;  // false for NaN
    const bool good = (!(x <= 0) || same(baracuda::exp_of_negative(x), whole)) &&
                      (!near || same(baracuda::exp_of_normal(x), whole)) &&
                      (near ? same(decay, below) : decay > 0 && decay <= baracuda::exp_of(T(-80)));
    if (!good) at = static_cast<double>(x), ++wrong;
  }
  bool none(const char* name) const {
    std::printf("%s: %ld results of shorter forms differ, one at %a\n", name, wrong, at);
    return wrong == 0;
  }
  static bool same(float a, float b) { return baracuda::bits_as<uint32_t>(a) == baracuda::bits_as<uint32_t>(b); }
  static bool same(double a, double b) { return baracuda::bits_as<uint64_t>(a) == baracuda::bits_as<uint64_t>(b); }
};

uint64_t mixed(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace

int main(int count, char** arguments) {
  const uint64_t step = count > 1 ? std::strtoull(arguments[1], nullptr, 10) : 499;
  if (step == 0) return 2;
  Worst exp32, log32, exp64, log64;
  Shorter shorter32, shorter64;
  for (uint64_t pattern = 0; pattern <= 0xffffffffu; pattern += step) {
    const float x = baracuda::bits_as<float>(static_cast<uint32_t>(pattern));
    exp32.look(x, baracuda::exp_of(x), std::exp(static_cast<double>(x)));
    log32.look(x, baracuda::log_of(x), std::log(static_cast<double>(x)));
    shorter32.look(x);
  }
  for (uint64_t i = 0; i <= 0xffffffffu / step && i < 20000000; ++i) {
    // Half of the numbers of any exponent, half where e^x is a number.
    const double any = baracuda::bits_as<double>(mixed(2 * i)), unit = static_cast<double>(mixed(2 * i + 1)) * 0x1p-64;
    const double x = i % 2 == 0 ? any : unit * 1460 - 748;
    exp64.look(x, baracuda::exp_of(x), std::exp(static_cast<long double>(x)));
    shorter64.look(x);
    const double y = i % 2 == 0 ? any : 0.5 + unit;  // the logarithm is small around 1
    log64.look(y, baracuda::log_of(y), std::log(static_cast<long double>(y)));
  }
  // No short circuit: every line is wanted.
  return (exp32.within("exp f32", 1) & log32.within("log f32", 1) & exp64.within("exp f64", 1) &
          log64.within("log f64", 1) & shorter32.none("exp f32") & shorter64.none("exp f64"))
             ? 0
             : 1;
}
