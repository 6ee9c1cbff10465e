#!/bin/sh
# What `make demo` shows: causal attention over a long sequence, cut across four ranks of one process, and a sample of
# its rows checked against fp64. The argument is the command.
set -eu
ringattn=${1:-build/ringattn}
tokens=${RINGATTN_DEMO_TOKENS:-32768}
ranks=4 heads=4 dim=64 rows=32

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' HUP INT TERM

# The values of one key of a JSON file that has an entry per line.
values() { sed -n "s/^ *\"$2\": \\([^,]*\\),\\{0,1\\}\$/\\1/p" "$1"; }
name() { values "$report" "$1" | tr -d '"'; }
sum() { awk '{ s += $1 } END { printf "%.0f\n", s }'; }
most() { sort -n | tail -n 1; }
mib() { awk -v bytes="$1" 'BEGIN { printf "%.1f MiB", bytes / 1048576 }'; }

echo "Causal attention over $tokens tokens, $heads heads of $dim, f32, on $ranks in-process ranks:"
for tensor in q k v; do
    case $tensor in q) seed=1 ;; k) seed=2 ;; v) seed=3 ;; esac
    "$ringattn" random --shape "1,$tokens,$heads,$dim" --seed $seed --out "$folder/$tensor.npy"
done

"$ringattn" run --q "$folder/q.npy" --k "$folder/k.npy" --v "$folder/v.npy" --out "$folder/o.npy" --causal \
    --ranks $ranks --strategy ring --check $rows --report "$folder/report.json" >/dev/null
"$ringattn" plan --seq "$tokens" --heads $heads --dim $dim --causal --ranks 1 --json >"$folder/whole.json"

# What a rank holds: its rows of Q, K, V, O and LSE, and the workspace. The whole: the same with one rank.
report=$folder/report.json whole=$folder/whole.json
arrays=$(values "$report" array_bytes | most)
workspace=$(values "$report" workspace_bytes | most)
whole_bytes=$(($(values "$whole" array_bytes) + $(values "$whole" workspace_bytes)))
sent=$(values "$report" bytes_sent | sum)
messages=$(values "$report" messages_sent | sum)
error=$(values "$report" max_abs_error | awk '{ printf "%.1e", $1 }')
seconds=$(values "$report" forward | awk '/^[0-9]/ { printf "%.2f s", $1 }')

cat <<TABLE

  tokens             $tokens, $(values "$report" tokens_q | most) on a rank
  ranks              $ranks ($(name strategy), $(name layout), $(name kernel) kernel)
  memory per rank    $(mib $((arrays + workspace))): $(mib "$arrays") its own rows, $(mib "$workspace") workspace
  one rank for all   $(mib $whole_bytes)
  moved              $(mib "$sent") in $messages messages
  time               $seconds
  error              $error at most, in $rows rows checked against fp64

TABLE
echo "More: ringattn plan --seq $tokens --ranks $ranks --causal; ringattn --help"
