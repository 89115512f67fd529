// SPDX-License-Identifier: Apache-2.0
// The names of the segment operators' rules and the list of their instances. What a rule does is in math/: names have
// external linkage, since launches are called by them across files, and formulas must not.
#pragma once

#include "core/dtype.h"

namespace baracuda::segment::rule {

// One result a segment.
template <typename T> struct Sum { using Element = T; };
template <typename T> struct Mean { using Element = T; };
template <typename T> struct Max { using Element = T; };
template <typename T> struct Min { using Element = T; };
template <typename T> struct MaxWithArg { using Element = T; };
template <typename T> struct MinWithArg { using Element = T; };
template <typename T> struct Prod { using Element = T; };
template <typename T> struct LogSumExp { using Element = T; };
// The same of rows that lie in a table or belong to bags.
template <typename T> struct BagSum { using Element = T; };
template <typename T> struct BagMax { using Element = T; };

// One result a row, which depends on all rows of its segment.
template <typename T> struct MaxGradient { using Element = T; };
template <typename T> struct MinGradient { using Element = T; };
template <typename T> struct MaxEvenGradient { using Element = T; };
template <typename T> struct MinEvenGradient { using Element = T; };
template <typename T> struct ProdGradient { using Element = T; };
template <typename T> struct Softmax { using Element = T; };
template <typename T> struct SoftmaxGradient { using Element = T; };

// One result a row, which depends on that row and on what is known of its segment.
template <typename T> struct Gather { using Element = T; };
template <typename T> struct MeanGradient { using Element = T; };
template <typename T> struct ArgGradient { using Element = T; };
template <typename T> struct LogSumExpGradient { using Element = T; };

}  // namespace baracuda::segment::rule

// Every instance that a backend provides, as X(RULE, T): with one result a segment, with one result a row.
#define BARACUDA_SEGMENT_INTEGER_RULES(X, T) \
  X(Sum, T) X(Max, T) X(Min, T) X(Prod, T) X(MaxWithArg, T) X(MinWithArg, T)
#define BARACUDA_SEGMENT_REDUCTIONS(X, T) BARACUDA_SEGMENT_INTEGER_RULES(X, T) X(Mean, T) X(LogSumExp, T)
#define BARACUDA_SEGMENT_GRADIENTS(X, T)                                                        \
  X(MaxGradient, T) X(MinGradient, T) X(MaxEvenGradient, T) X(MinEvenGradient, T)               \
  X(ProdGradient, T) X(Softmax, T) X(SoftmaxGradient, T)
#define BARACUDA_SEGMENT_MAPS(X, T) X(Gather, T) X(MeanGradient, T) X(ArgGradient, T) X(LogSumExpGradient, T)
#define BARACUDA_SEGMENT_RULES_BY_SEGMENT(X)                                             \
  BARACUDA_SEGMENT_REDUCTIONS(X, float) BARACUDA_SEGMENT_REDUCTIONS(X, double)           \
  BARACUDA_SEGMENT_REDUCTIONS(X, Half) BARACUDA_SEGMENT_REDUCTIONS(X, Bfloat16)          \
  BARACUDA_SEGMENT_INTEGER_RULES(X, int32_t) BARACUDA_SEGMENT_INTEGER_RULES(X, int64_t)
#define BARACUDA_SEGMENT_ROW_RULES(X, T) BARACUDA_SEGMENT_GRADIENTS(X, T) BARACUDA_SEGMENT_MAPS(X, T)
#define BARACUDA_SEGMENT_RULES_BY_ROW(X)                                             \
  BARACUDA_SEGMENT_ROW_RULES(X, float) BARACUDA_SEGMENT_ROW_RULES(X, double)         \
  BARACUDA_SEGMENT_ROW_RULES(X, Half) BARACUDA_SEGMENT_ROW_RULES(X, Bfloat16)
#define BARACUDA_SEGMENT_RULES(X) BARACUDA_SEGMENT_RULES_BY_SEGMENT(X) BARACUDA_SEGMENT_RULES_BY_ROW(X)
