#!/usr/bin/env bash
# Decode with fairseq-generate and score with SacreBLEU: detokenised text against the raw
# reference, every sentence exactly once, with the signature.
#
#   recipes/score.sh --data DATA/binarized --checkpoint RUN/checkpoint_best.pt \
#       --reference DATA/raw/test.de --out RUN/test
#
# --data DIR         binarized data made by data-prep/
# --checkpoint FILE  a checkpoint, or several with : between them (an ensemble)
# --reference FILE   the raw target text of the subset
# --subset NAME      test (default), test1, valid, …
# --beam N           default 5
# --out DIR          keeps generate.txt, hypotheses.txt and score.json (default: keeps nothing)
# --json FILE        another place for score.json
# -- FLAGS           any flags of fairseq-generate, for instance --lenpen 0.6
#
# Prints one line: the signature and the score. A second run with the same checkpoint, data and
# flags repeats that line without decoding.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
source "$here/common.sh"

data= checkpoint= reference= subset=test beam=5 out= json= flags=()
while [ $# -gt 0 ]; do
    case $1 in
        --help) usage; exit 0 ;;
        --data | --checkpoint | --reference | --subset | --beam | --out | --json)
            need_value "$@"
            set_option "$1" "$2"
            shift 2
            ;;
        --) shift; flags=("$@"); break ;;
        *) unknown_option "$1" ;;
    esac
done
need_options data checkpoint reference
need_whole_number --beam "$beam"
refuse_flags --path --gen-subset --beam --nbest --results-path --user-dir -- "${flags[@]}"
need_command python fairseq-generate sacrebleu sha256sum
IFS=: read -ra checkpoints <<<"$checkpoint"
for file in "${checkpoints[@]}"; do
    need_file "$file" "give a checkpoint that fairseq-train wrote"
done
need_file "$reference" "give the raw target text of the subset '$subset'"
find_languages "$data" "$subset"
need_file "$data/code" "--data must hold the BPE codes; make it with data-prep/prepare.sh"

if [ -n "$out" ]; then
    mkdir -p -- "$out"
else
    out=$(mktemp -d)
    trap 'rm -rf -- "$out"' EXIT
fi
settings=$(
    printf 'subset=%s beam=%s flags=%s\n' "$subset" "$beam" "${flags[*]@Q}"
    cat -- "${checkpoints[@]}" "$reference" "$data/code" "$data/dict.$source.txt" \
        "$data/$subset.$source-$target.$source.bin" | sha256sum
)
if [ ! -f "$out/score.json" ] || [ "$(cat -- "$out/settings" 2>/dev/null)" != "$settings" ]; then
    rm -f -- "$out"/{settings,score.json,generate.txt,hypotheses.txt}
    say "decoding $subset with beam $beam" >&2
    write_file "$out/generate.txt" fairseq-generate "$data" --user-dir "$plugin" \
        --task translation --source-lang "$source" --target-lang "$target" \
        --path "$checkpoint" --gen-subset "$subset" --beam "$beam" --nbest 1 \
        --tokenizer moses --bpe subword_nmt --bpe-codes "$data/code" \
        --required-batch-size-multiple 1 --no-progress-bar "${flags[@]}" 2>"$out/generate.log" ||
        fail "fairseq-generate stopped: $(tail -n 1 "$out/generate.log")"
    write_file "$out/hypotheses.txt" python "$here/hypotheses.py" "$out/generate.txt" "$reference" || exit 1
    write_file "$out/bleu.json" sacrebleu "$reference" --input "$out/hypotheses.txt" \
        --metrics bleu --width 2 --format json || fail "sacrebleu stopped; see the lines above"
    write_file "$out/score.json" python "$here/score_report.py" --checkpoint "$checkpoint" \
        --subset "$subset" --beam "$beam" --sentences "$(wc -l <"$out/hypotheses.txt")" \
        --flags "${flags[@]}" <"$out/bleu.json" || fail "cannot write $out/score.json"
    rm -f -- "$out/bleu.json"
    write_file "$out/settings" printf '%s\n' "$settings"
fi
[ -z "$json" ] || write_file "$json" cat -- "$out/score.json"
python - "$out/score.json" <<'PYTHON'
import json
import sys

with open(sys.argv[1], encoding="utf-8") as stream:
    report = json.load(stream)
print(
    f"SacreBLEU {report['subset']} {report['signature']} = {report['score']} "
    f"({report['sentences']} sentences, beam {report['beam']}, {':'.join(report['checkpoints'])})"
)
PYTHON
