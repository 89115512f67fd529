#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What only a machine with a GPU can prove. It needs nvcc, CMake, compute-sanitizer and a python3 with pytest, torch and
# the packages of the `test` set in pyproject.toml, and no network. Fails if no CUDA test ran.
#
#     bash tools/gpu_check.sh              everything
#     bash tools/gpu_check.sh bits fuzz    these steps alone, after the build
#     bash tools/gpu_check.sh pytest-kernels   of a step in parts one, such as the tests of CUDA without PyTorch and JAX
#     bash tools/gpu_check.sh --no-build pytest    with the libraries in pybaracuda/lib, as another machine built them
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

work=$PWD/build/gpu_check
logs=${OUT:-$work} # a folder for logs
native=$work/native
mkdir -p "$work" "$logs"
logs=$(realpath "$logs")
# Processes that share the GPU: with three frameworks' pools each takes some gigabytes of its memory. Half as many as
# cores: each has threads of its own, and sixteen on sixteen cores took more than half as long again as eight.
workers=$((($(nproc) + 1) / 2))
workers=$((workers < 8 ? workers : 8))
# Each sanitizer's, which run side by side; and the share of the cases that the slow ones take: one in so many.
sanitizer_workers=$(((workers + 1) / 2))
slow_share=3

# Kernels that racecheck cannot judge, by a regular expression found in the mangled name. None may be added for quiet.
# - roi_align's sum_tiles feeds a ring in shared memory through mbarriers. One lane arrives for its warp, after
#   __syncwarp(); racecheck takes the other lanes' accesses for unordered. With every lane arriving it sees no hazard.
# - segment's select_in_table keeps a filter that is read and written without order on purpose (volatile, so that each
#   access is one whole word): what is out of date there costs a second look and changes no result.
# - segment's count_rows reads a table's keys while others take places in it by compare-and-swap. A place goes from
#   empty to one key and stays; who reads it as empty tries the swap and is told (volatile, one whole word).
# - grid_sample's sum_tiles reads, for a sample at the image's border, also the taps that it does not have, and drops
#   them (add_slopes). Such a tap can lie beside the patch, where the next step's values are arriving.
# - bincount's add_blocks lets the lanes that name the same bin write their numbers into one byte at once on purpose:
#   whichever stands there behind the barrier, the others see that they are not alone.
not_judged=(
  --kernel-name-exclude 'regex=roi_align.*sum_tiles'
  --kernel-name-exclude 'regex=segment.*select_in_table'
  --kernel-name-exclude 'regex=segment.*count_rows'
  --kernel-name-exclude 'regex=grid_sample.*sum_tiles'
  --kernel-name-exclude 'regex=bincount.*add_blocks'
)

is_built=
if [[ ${1-} == --no-build ]]; then
  is_built=yes
  shift
fi
steps=("$@") # none: all
known=' ctest pytest pytest-kernels pytest-frameworks pytest-others bits full fuzz extents large'
known+=' memcheck racecheck initcheck tree '
for step in "${steps[@]}"; do
  [[ $known == *" $step "* ]] || { echo "gpu_check: there is no step $step, only$known"; exit 2; }
done
figure=      # what a step found, for its line in the summary

# Whether a step is to run: pytest-kernels is with pytest, too.
wanted() {
  ((${#steps[@]} == 0)) || [[ " ${steps[*]} " == *" $1 "* || " ${steps[*]} " == *" ${1%%-*} "* ]]
}

# check NAME COMMAND...: runs a step with its output in a log of that name. Steps may run side by side.
check() {
  local name=$1 began=$SECONDS outcome=ok
  shift
  [[ $name == build ]] || wanted "$name" || return 0
  figure=
  if ! "$@" >"$logs/$name.log" 2>&1; then
    outcome=FAILED
    tail -n 60 "$logs/$name.log"
  fi
  printf '%-17s %-7s %4s s  %s\n' "$name" "$outcome" "$((SECONDS - began))" "$figure" | tee -a "$logs/summary.txt"
}

failed() {
  grep -q ' FAILED ' "$logs/summary.txt"
}

finish() {
  if failed; then echo "gpu_check FAILED after $SECONDS s"; else echo "gpu_check passed in $SECONDS s"; fi |
    tee -a "$logs/summary.txt"
  ! failed
  exit
}

planted_faults() {
  nvcc -arch=native -o "$work/planted_faults" tests/native/planted_faults.cu
}

build() {
  local generator=()
  command -v ninja && generator=(-G Ninja)
  cmake -S . -B "$native" "${generator[@]}" -DBARACUDA_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES="$architectures" &&
    cmake --build "$native" --parallel "$(nproc)" &&
    cmake --install "$native" --component pybaracuda --prefix . &&
    planted_faults
  local status=$?
  figure="sm_${architectures//;/, sm_}, $(nvcc --version | sed -n 's/.*release \([0-9.]*\).*/nvcc \1/p')"
  return $status
}

native_tests() {
  rm -f "$work/ctest.xml"
  ctest --test-dir "$native" --output-on-failure --no-tests=error --parallel "$(nproc)" --output-junit "$work/ctest.xml"
  local status=$?
  figure=$(python3 - "$work/ctest.xml" <<'PYTHON'
import sys
import xml.etree.ElementTree
from pathlib import Path
from tools.test import skipped

report = Path(sys.argv[1])
skips = skipped(report)
print(f"{len(list(xml.etree.ElementTree.parse(report).getroot().iter('testcase')))} tests", end="")
print("".join(f", {name} skipped ({reason or 'for no allowed reason'})" for name, reason in skips))
sys.exit(any(not reason.startswith("no rustc") for _, reason in skips))
PYTHON
  ) && return $status
}

# python_tests EXPRESSION ARGUMENT...: what pytest selects by it, names of tests among its words, and by the arguments,
# for the check's step.
python_tests() {
  rm -f "$work/pytest.xml"
  local parallel=()
  python3 -c 'import xdist' && parallel=(-n "$workers")
  # Neighbouring tests take alike long: those of JAX would keep two processes busy when the others have ended.
  python3 -m pytest --help | grep -q worksteal && parallel+=(--dist worksteal)
  # Names as they end, and after an interrupt still what failed.
  OMP_NUM_THREADS=2 OPENBLAS_NUM_THREADS=2 BARACUDA_TEST_REQUIRE="$required" \
    timeout --signal=INT --kill-after=60 900 python3 -m pytest -v --tb=short --durations=30 --maxfail=40 \
    "${parallel[@]}" -k "$1" --junitxml="$work/pytest.xml" "${@:2}"
  local status=$?
  figure=$(python3 - "$work/pytest.xml" "$name" <<'PYTHON'
import sys
import xml.etree.ElementTree

passed, skips = [], []
for case in xml.etree.ElementTree.parse(sys.argv[1]).getroot().iter("testcase"):
    skip = case.find("skipped")
    if skip is not None:
        skips.append(skip.get("message", ""))
    elif case.find("failure") is None and case.find("error") is None:
        passed.append(f"{case.get('classname')}::{case.get('name')}")
execution = [name for name in passed if "test_cuda_execution" in name]
cuda = [name for name in passed if name in execution or "cuda" in name.partition("[")[2]]
print(f"{len(passed)} passed, of them {len(cuda)} on CUDA, {len(execution)} of graphs and streams", end="")
print(f", {len(skips)} skipped ({', '.join(sorted(set(skips)))})" if skips else "")
# A skip for want of a second GPU fails where there are two: see `required`.
allowed = ("no rustc", "no usable torchvision", "fewer than two GPUs")
# Those of graphs and streams are among the kernels'.
wanted = {"pytest-kernels": execution, "pytest-frameworks": cuda, "pytest-others": passed}[sys.argv[2]]
sys.exit(not wanted or any(skip not in allowed for skip in skips))
PYTHON
  ) && return $status
}

# Takes all of the GPU's memory, so that nothing may run beside it.
full_device_tests() {
  BARACUDA_TEST_REQUIRE=cuda timeout 500 python3 -m pytest -v --tb=short --durations=0 -m full_device -k cuda
  local status=$?
  figure=$(tail -n 1 "$logs/full.log")
  return $status
}

# large_tests ARGUMENT...: those of more than 2^31 elements that pytest selects by the arguments, for the check's step.
large_tests() {
  local parallel=()
  python3 -c 'import xdist' && parallel=(-n 2)
  BARACUDA_TEST_REQUIRE=cuda \
    timeout 600 python3 -m pytest -q --tb=short --durations=0 -m large -k cuda "${parallel[@]}" "$@"
  local status=$?
  figure=$(tail -n 1 "$logs/$name.log")
  return $status
}

bits() {
  timeout 600 python3 tools/bits.py --check
  local status=$?
  figure="$(grep -c '^cpu-.* cases$' "$logs/bits.log") CPU"
  figure+=" and $(grep -c '^cuda.* cases$' "$logs/bits.log") CUDA configurations"
  return $status
}

# Calls with valid and hostile arguments, whose results must be the CPU library's.
hostile_calls() {
  timeout 300 python3 tools/fuzz.py --backend cuda --seconds 120
  local status=$?
  figure=$(grep -E '^[0-9,]+ calls in|^[0-9]+ findings' "$logs/fuzz.log" | paste -sd ' ')
  return $status
}

# sanitize TOOL SHARE ARGUMENT...: the tool must find its planted fault, and none in the kernels, of which it sees one
# case in SHARE.
sanitize() {
  local tool=$1 share=$2
  shift 2
  "$work/planted_faults" "$tool" || return 1
  if compute-sanitizer --tool "$tool" --error-exitcode 3 "$work/planted_faults" "$tool"; then
    figure="$tool does not see a planted fault on this machine"
    return 1
  fi
  echo "---- above: the planted fault; below: the library"
  local excluded=()
  [[ $tool == racecheck ]] && excluded=("${not_judged[@]}")
  local part parts=$((share * sanitizer_workers)) status=0 jobs=()
  for ((part = 1; part <= sanitizer_workers; ++part)); do
    PYTHONPATH=. timeout 600 compute-sanitizer --tool "$tool" --error-exitcode 3 "${excluded[@]}" \
      python3 tests/sanitizer_run.py --part "$part/$parts" "$@" >"$work/$tool.$part.log" 2>&1 &
    jobs+=($!)
  done
  for part in "${jobs[@]}"; do wait "$part" || status=1; done
  cat "$work/$tool".*.log
  rm "$work/$tool".*.log
  figure=$(awk '/ cases on cuda/ { cases += $1; wrong += $5 } END { print cases " cases on cuda, " wrong " wrong" }' \
    "$logs/$tool.log")
  return $status
}

# The working tree is as it was before the checks.
unchanged() {
  git status --short
  [[ $(git status --porcelain 2>/dev/null) == "$before" ]]
}

device=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | sort -u | paste -sd ';') &&
  architectures=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | tr -d . | sort -un | paste -sd ';') &&
  [[ $architectures ]] || { echo "gpu_check: nvidia-smi shows no GPU"; exit 1; }
before=$(git status --porcelain 2>/dev/null)
# What no test may be skipped for.
required=cuda,torch
(($(nvidia-smi --list-gpus | wc -l) > 1)) && required+=,gpus

echo "gpu_check: $device" | tee "$logs/summary.txt"
if [[ $is_built ]]; then
  [[ " ${steps[*]} " != *' ctest '* ]] || { echo "gpu_check: ctest needs the build"; exit 2; }
  check build planted_faults
else
  check build build
fi
if failed; then finish; fi
[[ $is_built ]] || check ctest native_tests
# In parts, since a machine may be lent for minutes at a time.
on_cuda='cuda or cupy'
check pytest-kernels python_tests "$on_cuda" --ignore-glob='*/test_torch_*' --ignore-glob='*/test_jax_*'
check pytest-frameworks python_tests "$on_cuda" tests/test_torch_*.py tests/test_jax_*.py
check pytest-others python_tests "not ($on_cuda)"
check bits bits
check full full_device_tests
check fuzz hostile_calls
# An extent of 2^31 keeps a few threads busy for long, and has memory of its own.
extents=tests/test_large_extents.py
check extents large_tests "$extents"
check large large_tests --ignore="$extents" &
check memcheck sanitize memcheck 1 &
check racecheck sanitize racecheck "$slow_share" &
check initcheck sanitize initcheck "$slow_share" --fresh-workspace &
wait
check tree unchanged
finish
