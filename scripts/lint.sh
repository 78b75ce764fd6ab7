#!/usr/bin/env bash
# Format, inclusion order, links of pages and clang-tidy. Each prints what it found; the exit status says if any did.
# TIDY=all checks every source file, else those that differ from the base revision (LINT_BASE).
set -uo pipefail
cd "$(dirname "$0")/.."
status=0

mapfile -t sources < <(git ls-files 'src/*.h' 'src/*.cc' 'src/*.cu' 'src/*.cuh' 'apps/*.h' 'apps/*.cc' \
  'tests/*.h' 'tests/*.cc' 'tests/*.cu' 'bench/*.h' 'bench/*.cc' 'bench/*.cu' 'examples/*.cc' 'python/*.h' 'python/*.cc')
echo "format: ${#sources[@]} files"
clang-format-14 --dry-run -Werror "${sources[@]}" || status=1

echo "includes"
python3 tools/check_includes.py || status=1

echo "links"
python3 tools/check_links.py || status=1

if [ -f build/release/compile_commands.json ]; then
  # clang-tidy 14 does not read the C++20 coroutines of libstdc++ that the server's HTTP is made of.
  mapfile -t units < <(git ls-files 'src/braid/*.cc' 'apps/*.cc' |
    grep -vE '_simd\.cc$|^src/braid/server/((http|routes)/|server\.cc)|^apps/braid/serve\.cc')
  if [ "${TIDY:-changed}" != all ]; then
    base=${LINT_BASE:-$(git rev-list -1 HEAD~1 2>/dev/null || git rev-parse HEAD)}
    mapfile -t changed < <(git diff --name-only "$base" -- 'src/braid/*.cc' 'apps/*.cc')
    mapfile -t units < <(comm -12 <(printf '%s\n' "${units[@]}" | sort) \
      <(printf '%s\n' "${changed[@]}" | sort))
  fi
  echo "clang-tidy: ${#units[@]} files"
  if [ ${#units[@]} -gt 0 ]; then
    mkdir -p build/release/tidy  # clang does not read the headers that g++ compiled
    sed -E 's/ -include [^ ]*cmake_pch[^ ]*| -fpch-preprocess//g' build/release/compile_commands.json \
      > build/release/tidy/compile_commands.json
    printf '%s\n' "${units[@]}" |
      xargs -P "$(nproc)" -n 4 clang-tidy-14 -p build/release/tidy --quiet 2>/dev/null || status=1
  fi
fi
exit $status
