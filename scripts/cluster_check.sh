#!/bin/bash
# Checks Braid on a cluster and writes a page to send back. The launcher's words follow the model:
#   scripts/cluster_check.sh model.gguf mpirun -n 4 --bind-to none > page.txt
#   scripts/cluster_check.sh model.gguf srun --mpi=pmix -n 4 > page.txt
# BRAID names the program, RANKS the number of processes where -n does not.
set -uo pipefail
if [ $# -lt 2 ]; then sed -n '2,5p' "$0" >&2; exit 2; fi
braid=${BRAID:-braid}
model=$1
shift
ranks=${RANKS:-}
words=("$@")
for ((i = 0; i + 1 < $#; ++i)); do
  case ${words[$i]} in -n | -np | --ntasks) ranks=${ranks:-${words[$((i + 1))]}} ;; esac
done
if [ -z "$ranks" ]; then echo "$0: how many processes? RANKS=4, or -n 4" >&2; exit 2; fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

say() { printf '\n## %s\n\n' "$*"; }
verdict() { # NAME STATUS: 0 is what is wanted
  if [ "$2" -eq 0 ]; then echo "ok: $1"; else echo "FAILED: $1"; failed=1; fi
}
job() { timeout -s KILL 300 "${words[@]}" "$braid" "$@" < /dev/null; }
ask=(run -m "$model" --prompt-ids '3,4,5,6,7' -n 16 --ignore-eos --threads 1)

say "Braid on a cluster: ${words[*]}"
date -u
"$braid" --version
say "The model"
ls -lL "$model" && head -c 1048576 "$model" | sha256sum
say "Ranks"
job ranks 2>&1
verdict "braid ranks" $?

for sharing in "--tp $ranks" "--sp ring --ranks $ranks"; do
  say "$sharing: the answer of one process"
  # shellcheck disable=SC2086
  "$braid" "${ask[@]}" $sharing --device cpu > "$work/one" 2> "$work/one.err" < /dev/null
  status=$?
  # shellcheck disable=SC2086
  job "${ask[@]}" $sharing --explain --describe "$work/cluster.json" > "$work/job" 2> "$work/job.err"
  verdict "the job ends well" $((status + $?))
  cmp "$work/one" "$work/job"
  verdict "the answers are equal" $?
  grep tok "$work/job.err"
done

say "Plans of the description"
grep '^plan ' "$work/job.err" | sort -u > "$work/made"
"$braid" plan --cluster "$work/cluster.json" -m "$model" --tokens 5 | tee "$work/planned"
grep -qFxf "$work/planned" "$work/made"
verdict "braid plan --cluster gives the hash of the job" $?

say "A death"
job run -m "$model" -p 'Once' -n 100000 --ignore-eos --tp "$ranks" > "$work/death" 2>&1 &
launcher=$!
for ((i = 0; i < 300; ++i)); do
  [ -s "$work/death" ] && break
  sleep 0.1
done
victim=$(pgrep -n -f -- "run -m $model -p Once -n 100000" || true)
begin=$SECONDS
[ -n "$victim" ] && kill -9 "$victim"
wait "$launcher"
status=$?
grep 'braid: rank' "$work/death" | head -4
echo "the launcher ended with status $status after $((SECONDS - begin)) s"
[ $status -ne 0 ] && [ $((SECONDS - begin)) -lt 30 ]
verdict "a killed process of this host ends the job" $?
segments=$(find /dev/shm -name 'ucx_shm_posix_*' -user "$(id -u)" 2> /dev/null | wc -l)
verdict "nothing is left in /dev/shm ($segments segments)" "$segments"

say "Result"
if [ $failed -eq 0 ]; then echo "all checks passed"; else echo "some checks failed"; fi
exit $failed
