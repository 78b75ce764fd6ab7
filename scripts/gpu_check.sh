#!/usr/bin/env bash
# Checks and measures Braid on a machine with GPUs: scripts/gpu_check.sh [unit|dist|bench|pictures|sanitize|all]
# The parts of bench (kernels, models, pairs, peers), of pictures (image, one_gpu, encode, large, several, video,
# figures, picture_peers) and of sanitize (memcheck, racecheck) can be asked for alone. A part of pictures ends within
# ten minutes.
# GTEST_TOTAL_SHARDS and GTEST_SHARD_INDEX divide unit and dist over several GPUs.
#   unit      every kernel against its reference, whole models against their goldens, on one GPU
#   dist      collectives and models over several ranks, which share where there are too few GPUs
#   bench     tables of the kernels and of whole models, with ratios measured in the same run
#   pictures  images and videos: exact on one GPU, at full size, whole jobs, 4096 x 4096, several GPUs, figures, peers
#   sanitize  compute-sanitizer's memcheck and racecheck over small sizes
# BRAID_BUILD names the folder of the binaries (default build/release; built there if they are missing),
# BRAID_OUT that of the logs and JSON results (default gpu_check), BRAID_TEST_MODEL the demo model,
# BRAID_LINKS the emulated links of figures in GB/s (default "12.5 25").
set -uo pipefail
cd "$(dirname "$0")/.."
what=${1:-all}
bin=${BRAID_BUILD:-build/release}/bin
out=${BRAID_OUT:-gpu_check}
model=${BRAID_TEST_MODEL:-${XDG_CACHE_HOME:-$HOME/.cache}/braid/models/smollm2-135m-instruct-q4_1.gguf}
[ -e "$model" ] && export BRAID_TEST_MODEL="$model"
limit=${BRAID_LIMIT:-300} # seconds for one program
mkdir -p "$out"
failed=()
export CUDA_DEVICE_MAX_CONNECTIONS=${CUDA_DEVICE_MAX_CONNECTIONS:-32} # as braid itself asks for

if [ ! -x "$bin/braid" ]; then
  cmake --preset release >/dev/null && cmake --build build/release -j "$(nproc)" || exit 1
fi
gpus=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | wc -l)
if [ -n "${CUDA_VISIBLE_DEVICES:-}" ]; then # fewer may be given
  gpus=$(tr ',' '\n' <<<"$CUDA_VISIBLE_DEVICES" | wc -l)
fi
if [ "$gpus" -eq 0 ]; then
  echo "gpu_check: this machine has no GPU" >&2
  exit 1
fi
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | sort | uniq -c
card="$gpus x $(nvidia-smi --query-gpu=name --format=csv,noheader | sort -u | paste -sd+)"

# What a log of GoogleTest says of passed and skipped tests.
tests_of() {
  sed -nE 's/^\[  (PASSED|SKIPPED) +\] ([0-9]+) tests?.*/, \2 \L\1/p' "$1" | tr -d '\n'
}

# run NAME COMMAND...: its output into a log, one line here.
run() {
  local name=$1 start=$SECONDS seconds=$limit
  shift
  [ "$((part_end - SECONDS))" -lt "$seconds" ] && seconds=$((part_end - SECONDS))
  if [ "$seconds" -le 0 ]; then
    echo "FAIL  $name: the part's ten minutes are over"
    failed+=("$name")
  elif timeout "$seconds" "$@" >"$out/$name.log" 2>&1; then
    echo "ok    $name ($((SECONDS - start)) s, $card)$(tests_of "$out/$name.log")"
    if [ -z "${GTEST_TOTAL_SHARDS:-}" ] && grep -q '^\[==========\] 0 tests' "$out/$name.log"; then
      echo "FAIL  $name: its filter names no test"
      failed+=("$name")
    fi
  else
    echo "FAIL  $name: rc $?, see $out/$name.log"
    tail -5 "$out/$name.log"
    failed+=("$name")
  fi
}
part_end=1000000000
# part NAME: runs it within ten minutes, its numbers behind the card's name.
part() {
  echo "== $1, $card"
  part_end=$((SECONDS + 600))
  "$1"
  part_end=1000000000
}
# table NAME COMMAND...: as run, and shows what it printed.
table() {
  run "$@"
  grep -E '^\||so that nothing can' "$out/$1.log" || true
}

unit() {
  local family
  for family in linear pointwise dense decode cluster fused_attention sampling experts latent attention; do
    run "test_$family" "$bin/test_cuda_$family" --gtest_brief=1
  done
  run test_models "$bin/test_golden_cuda" --gtest_brief=1 --gtest_filter=-*RanksAgree*:*Demo*:*CudaSequence*:CudaRanks*:*RanksShareOne*
  run test_models_one_queue env CUDA_DEVICE_MAX_CONNECTIONS=1 "$bin/test_golden_cuda" --gtest_brief=1 \
    --gtest_filter=*Loop*/smollm2:CudaStreams*
}

dist() {
  run test_comm "$bin/test_cuda_comm" --gtest_brief=1
  run test_sequence "$bin/test_cuda_sequence" --gtest_brief=1
  run test_ranks "$bin/test_golden_cuda" --gtest_brief=1 \
    --gtest_filter=*RanksAgree*:*Demo*:*CudaSequence*:CudaRanks*:*RanksShareOne*
  if [ "$gpus" -lt 2 ]; then
    echo "      one GPU: ranks shared it, and with one queue they cannot"
    return
  fi
  run test_sequence_one_queue env CUDA_DEVICE_MAX_CONNECTIONS=1 "$bin/test_cuda_sequence" --gtest_brief=1
  run test_ranks_one_queue env CUDA_DEVICE_MAX_CONNECTIONS=1 "$bin/test_golden_cuda" --gtest_brief=1 \
    --gtest_filter=*RanksAgree/llama2_mha:*RanksAgree/smollm2:*CudaSequence*llama2_mha
}

bench() {
  kernels
  models
  pairs
  peers
}

kernels() {
  local family
  table bench_pointwise "$bin/bench_cuda_pointwise" --require 0.75 --json "$out/pointwise.json"
  for family in linear decode cluster fused_attention sampling; do
    table "bench_$family" "$bin/bench_cuda_$family" --json "$out/$family.json"
  done
  table bench_gemm "$bin/bench_cuda_gemm" --json "$out/gemm.json"
  table bench_experts "$bin/bench_cuda_experts"
}

models() {
  local context family shape=(--device cuda --random-weights --config)
  for context in 1024 4096 16384; do
    table "decode_7b_$context" "$bin/braid" bench "${shape[@]}" configs/llama-2-7b.json -p 0 -n 128 -d "$context"
  done
  table decode_7b_batches "$bin/braid" bench "${shape[@]}" configs/llama-2-7b.json -p 0 -n 64 -d 1024 -b 8,16,32
  for family in qwen3-30b-a3b deepseek-v2-lite; do
    table "decode_$family" "$bin/braid" bench "${shape[@]}" "configs/$family.json" -p 0 -n 32 -d 1024 -b 1,16,64
    table "prefill_$family" "$bin/braid" bench "${shape[@]}" "configs/$family.json" -p 8192 -n 0
  done
  table prefill_8b "$bin/braid" bench "${shape[@]}" configs/llama-3-8b.json -p 8192 -n 0
}

pairs() { # what takes two GPUs
  local mode shape=(--random-weights --config)
  [ "$gpus" -ge 2 ] || return 0
  table bench_comm "$bin/bench_cuda_comm" --json "$out/comm.json"
  table decode_7b_tp2 "$bin/braid" bench --device cuda "${shape[@]}" configs/llama-2-7b.json -p 0 -n 128 -d 1024 --tp 2
  table attention_flux "$bin/braid" bench attention --shape flux-3072 --device cuda:0,1 --sp all -r 3
  for mode in ring ulysses; do
    table "prefill_8b_$mode" "$bin/braid" bench "${shape[@]}" configs/llama-3-8b.json --device cuda:0,1 --sp "$mode" \
      -p 32768 -n 0
  done
}

flux=(--random-weights configs/flux-1-dev.json)
cogvideox=(--random-weights configs/cogvideox-5b.json)
devices() { # all GPUs, at most four
  seq -s, 0 $((gpus < 4 ? gpus - 1 : 3)) | sed 's/^/cuda:/'
}

image() { # one image beside diffusers' goldens, and the demo model's picture
  run test_image "$bin/test_golden_cuda" --gtest_brief=1 \
    --gtest_filter='*CudaDiffusion.*:CudaDiffusionRandom.*:CudaAutoencoder.*:CudaMemory.*:CudaNoise.*:*FullWidthOnGpu*'
  run demo_image "$bin/braid" image -m models/demo-image --device cuda:0 --size 64 --steps 20 --text-tokens 16 --seed 0 \
    -p 'a big red circle on the left in the gray background' -o "$out/demo.png"
}

one_gpu() { # the 12B model: steps, decoding, what kernels take, the first image of a size
  table steps_flux "$bin/braid" bench image "${flux[@]}" --device cuda:0 --size 1024,2048 --decode -r 3
  table bench_flux "$bin/bench_cuda_flux" "${flux[1]}" --size 1024 --size 2048 --decode 1024 --velocity "$out/velocity.f32"
  job one_image "${flux[@]}" --size 1024 -n 2
}

# job NAME OPTIONS...: a picture with default settings; times beside its steps.
job() {
  local name=$1
  shift
  run "$name" "$bin/braid" image --device cuda:0 --seed 1 -p 'a red box on the sea' -o "$out/$name.png" --json "$@"
  python3 tools/picture_shares.py "$out/$name.log" || failed+=("$name: shares")
}

encode() { # a whole job with text encoders of full size, 36 GB of a temporary folder
  local folder
  folder=$(mktemp -d)
  run full_size_folder python3 tools/make_full_size_pipeline.py "$folder/flux"
  job whole_image -m "$folder/flux" -n 3
  job whole_image_cpu -m "$folder/flux" --text-encoder cpu
  rm -rf "$folder"
}

large() { # exact beside the resident transformer
  job image_4096 "${flux[@]}" --size 4096 --steps 2
}

several() {
  run test_image_ranks "$bin/test_golden_cuda" --gtest_brief=1 --gtest_filter='*CudaDiffusionRanks*'
  [ "$gpus" -ge 2 ] || return 0
  table steps_flux_sp "$bin/braid" bench image "${flux[@]}" --device "$(devices)" --size 1024,2048 --sp all --decode -r 3
}

video() {
  run test_video "$bin/test_golden_cuda" --gtest_brief=1 --gtest_filter='*CudaVideo*:*CudaCogVideoX*'
  table steps_cogvideox "$bin/braid" bench video "${cogvideox[@]}" --device cuda:0 --decode -r 3
  [ "$gpus" -ge 2 ] || return 0
  table steps_cogvideox_sp "$bin/braid" bench video "${cogvideox[@]}" --device "$(devices)" --sp ring,ulysses --decode -r 3
}

figures() { # of the paper, by parts of a step, GPUs as machines
  local figure links
  table figure_12 "$bin/braid" bench image "${flux[@]}" --device cuda:0 -r 3 --figure 12
  [ "$gpus" -ge 2 ] || return 0
  local places=(--device "$(devices)" --machines "$((gpus < 4 ? gpus : 4))x1" -r 2 --warm-ups 1)
  for links in ${BRAID_LINKS:-12.5 25}; do
    for figure in 7 8 10; do
      table "figure_${figure}_image_$links" "$bin/braid" bench image "${flux[@]}" "${places[@]}" --link-gbps "$links" \
        --figure "$figure" --blocks 4
    done
    table "figure_7_video_$links" "$bin/braid" bench video "${cogvideox[@]}" "${places[@]}" --link-gbps "$links" \
      --figure 7 --blocks 1 --heads 24,48
  done
  table figure_9 "$bin/braid" bench image "${flux[@]}" "${places[@]}" --link-gbps 12.5 --figure 9
  table figure_9_batches "$bin/braid" bench image "${flux[@]}" "${places[@]}" --link-gbps 12.5 --figure 9 \
    --tokens 32768,98304 --batch 1,2,4 --simulate-one
  table figure_9_steps "$bin/braid" bench video "${cogvideox[@]}" "${places[@]}" --link-gbps 12.5 --figure 9 \
    --frames 161 --batch 1,2,4 --blocks 1 --heads 24
}

picture_peers() {
  if python3 -c 'import diffusers' 2>/dev/null; then
    [ -e "$out/velocity.f32" ] || run velocity "$bin/bench_cuda_flux" "${flux[1]}" --size 1024 --velocity "$out/velocity.f32"
    run peer_flux python3 tools/bench_image_torch.py configs/flux-1-dev.json --size 1024 --size 2048 --compile \
      --velocity "$out/velocity.f32"
    local pixels
    pixels=$(mktemp -d)
    table bench_flux_decoder "$bin/bench_cuda_flux" configs/flux-1-dev.json --decode 1024 --decode 4096 \
      --pixels "$pixels/flux"
    run peer_flux_decoder python3 tools/bench_decoder_torch.py configs/flux-1-dev.json --size 1024 --size 4096 \
      --pixels "$pixels/flux" --f32
    rm -rf "$pixels"
    grep -hE '^([0-9]+ x|step|decode|difference)' "$out/peer_flux.log" "$out/peer_flux_decoder.log" || true
    [ "$gpus" -ge 2 ] || return 0
    run peer_flux_sp python3 tools/bench_image_sp_torch.py configs/flux-1-dev.json --ranks 2 --size 1024,2048 \
      --case diffusers:ulysses,diffusers:ulysses:compile:1024 --seconds 240
    grep -E ' ms' "$out/peer_flux_sp.log" || true
  fi
}

peers() {
  if python3 -c 'import torch' 2>/dev/null; then
    table peer_torch python3 tools/bench_torch.py --config configs/llama-2-7b.json --limits --batch 1 16 32
    table peer_torch_prefill python3 tools/bench_torch.py --config configs/llama-3-8b.json --batch --prefill 8192
    run peer_attention python3 tools/bench_attention_peer.py --rounds 5 --ms 12 --json "$out/attention.json" \
      --library "${BRAID_BUILD:-build/release}/bench/libbench_cuda_attention_c.so"
    grep -E '^(full|causal)' "$out/peer_attention.log" || true
  fi
}

# Small tests of each family; racecheck is slow, and wants a GPU alone.
check_memory() { # tool family filter
  run "$1_$2" compute-sanitizer --tool "$1" --error-exitcode 9 --report-api-errors no "$bin/test_$2" \
    --gtest_filter="$3" --gtest_brief=1
}

small_families() { # tool
  local tool=$1 library=:CudaDense.RowsOfWideHeads
  [ "$tool" = racecheck ] && library= # an exchange in one of cuBLAS' own kernels looks like a race
  check_memory $tool golden_cuda '*InEveryForm/llama2_mha:*TheLoop/smollm2'
  check_memory $tool cuda_linear 'StreamLinear.GateNormAndResidual:StreamLinear.BiasesTypesAndStrides'
  check_memory $tool cuda_pointwise "Embedding.Unknown*:GatherRows.R*:GatherRows.None*:Gated.Extremes*:Pointwise.*:RmsNorm.HeadGroups:RopeAppend.TypesAndAlignment"
  check_memory $tool cuda_dense "CudaImage.*:CudaDense.NormRope*:CudaDense.LinearUnary$library"
  check_memory $tool cuda_decode 'Decode.UnevenHeads:Decode.ManySequences:PagedCall.WindowsAndHeadParts'
  check_memory $tool cuda_cluster 'Exchange.NotFinite:Exchange.Pieces'
  check_memory $tool cuda_sampling 'DecodeLoop.*:Sample.Ties*:Sample.NotFinite*:Sample.RowsWithout*:RandomFill.*'
  check_memory $tool cuda_experts '*OddWidths:*ABroken*:*ALogit*:*EachExpert*'
  check_memory $tool cuda_latent '*ABroken*:*Append*:*Transpose*'
  check_memory $tool cuda_attention 'Attention.StateWithoutKeys:Attention.FullyMaskedRows'
}

memcheck() {
  small_families memcheck
  # CTAs of a relay wait for each other: too long under racecheck.
  check_memory memcheck cuda_fused_attention 'FusedAttention.ScoresFar*:FusedAttention.CheckTells*'
  check_memory memcheck golden_cuda '*CudaRelay*heads_of_64:*CudaRelay*window:*CudaRelay*wide*:*CudaDualChunks*/ring*_by_64'
  check_memory memcheck cuda_comm 'Collective.LiveRows*:Collective.SumsOddly*:ReduceNorm.Residual*'
  check_memory memcheck cuda_sequence '*EqualsOneRank*/torus_1x2:*EqualsOneRank*/ulysses_2x1:*Proxy*Several*:Handover*:LevelOps*:*QueriesAreDropped'
}

racecheck() {
  small_families racecheck
  check_memory racecheck cuda_sequence 'Handover*:LevelOps*'
}

sanitize() {
  memcheck
  racecheck
}

pictures() {
  local each
  for each in image one_gpu encode large several video figures picture_peers; do
    part "$each"
  done
}

case $what in
  unit | dist | bench | kernels | models | pairs | peers | pictures | sanitize | memcheck | racecheck) "$what" ;;
  image | one_gpu | encode | large | several | video | figures | picture_peers) part "$what" ;;
  all)
    unit
    dist
    bench
    pictures
    sanitize
    ;;
  *)
    echo "gpu_check: '$what': wanted unit, dist, bench, pictures, sanitize, all or one of their parts" >&2
    exit 2
    ;;
esac
if [ ${#failed[@]} -gt 0 ]; then
  echo "failed: ${failed[*]}"
  exit 1
fi
