// SPDX-License-Identifier: Apache-2.0
// The formulas of the segment operators, shared by both backends: what a rule keeps of a segment's column and what it
// makes of it. Adding an operator is adding a Rule to one of these files; no formula stands here.
#pragma once

#include "ops/segment/math/arithmetic.h"
#include "ops/segment/math/bags.h"
#include "ops/segment/math/exponentials.h"
#include "ops/segment/math/keys.h"
#include "ops/segment/math/maps.h"
#include "ops/segment/math/orders.h"
#include "ops/segment/math/rule.h"
#include "ops/segment/math/selections.h"
#include "ops/segment/math/sums.h"
