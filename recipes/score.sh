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
# --dry-run          print the commands and do nothing; needs --out
# -- FLAGS           any flags of fairseq-generate, for instance --lenpen 0.6
#
# Prints one line: the signature and the score. Where the data have documents
# (DATA/SUBSET.documents), a second line has the score of whole documents. A second run with the
# same checkpoint, data and flags repeats the lines without decoding. How words were split is in
# DATA/preparation; where it says that the data are in small letters, the score leaves case aside
# and says so.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
source "$here/lib/common.sh"
source "$here/lib/one_run.sh"
end_together "$@"

data='' checkpoint='' reference='' subset=test beam=5 out='' json='' dry_run='' flags=()
while [ $# -gt 0 ]; do
    case $1 in
        --help) usage; exit 0 ;;
        --data | --checkpoint | --reference | --subset | --beam | --out | --json)
            need_value "$@"
            set_option "$1" "$2"
            shift 2
            ;;
        --dry-run) dry_run=yes; shift ;;
        --) shift; flags=("$@"); break ;;
        *) unknown_option "$1" ;;
    esac
done
need_options data checkpoint reference
need_whole_number --beam "$beam"
refuse_flags --path --gen-subset --beam --nbest --results-path --user-dir -- "${flags[@]}"
need_command python fairseq-generate sacrebleu sha256sum
IFS=: read -ra checkpoints <<<"$checkpoint"
[ -z "$dry_run" ] || need_options out
for file in "${checkpoints[@]}"; do
    [ -n "$dry_run" ] || need_file "$file" "give a checkpoint that fairseq-train wrote"
done
need_file "$reference" "give the raw target text of the subset '$subset'"
find_languages "$data" "$subset"
read_preparation "$data"

splitting=() ways=
[ "$tokenizer" = none ] || splitting+=(--tokenizer "$tokenizer")
case $bpe in
    subword_nmt) splitting+=(--bpe "$bpe" --bpe-codes "$data/$pieces") ;;
    sentencepiece)
        need_module sentencepiece "run: pip install sentencepiece"
        splitting+=(--bpe "$bpe" --sentencepiece-model "$data/$pieces")
        ;;
esac
ignoring=()
[ "$letter_case" = mixed ] || ignoring=(--lowercase)
[ "$tokenizer $bpe $letter_case" = "moses subword_nmt mixed" ] || ways=" $tokenizer $bpe $letter_case"

if [ -n "$dry_run" ]; then
    :
elif [ -n "$out" ]; then
    make_folder "$out"
else
    out=$(mktemp -d)
    trap 'rm -rf -- "$out"' EXIT
fi
generate=(
    fairseq-generate "$data" --user-dir "$plugin"
    --task translation --source-lang "$source" --target-lang "$target"
    --path "$checkpoint" --gen-subset "$subset" --beam "$beam" --nbest 1
    "${splitting[@]}" --required-batch-size-multiple 1 --no-progress-bar "${flags[@]}"
)
# Not through recipes_helper, whose PYTHONPATH is none of fairseq's.
measured=(python -P "$root/recipes/lib/peak_memory.py" "$out/peak_memory")
order=("${recipes_helper[@]}" hypotheses "$out/generate.txt" "$reference")
metric=(--metrics bleu --width 2 --format json "${ignoring[@]}")
bleu=(sacrebleu "$reference" --input "$out/hypotheses.txt" "${metric[@]}")
# Each document becomes one line, translations and reference alike.
documents=$data/$subset.documents
join=("${recipes_helper[@]}" whole_documents)
join_translations=("${join[@]}" "$out/hypotheses.txt" "$documents")
join_reference=("${join[@]}" "$reference" "$documents")
bleu_of_documents=(sacrebleu "$out/documents.reference" --input "$out/documents.txt" "${metric[@]}")

# score_documents: sets documents_score to what score_report takes of whole documents.
score_documents() {
    write_file "$out/documents.txt" "${join_translations[@]}" || exit 1
    write_file "$out/documents.reference" "${join_reference[@]}" || exit 1
    write_file "$out/documents.json" "${bleu_of_documents[@]}" || fail "sacrebleu stopped; see the lines above"
    documents_score=(--documents "$out/documents.json" --number-of-documents "$(wc -l <"$out/documents.txt")")
}

if [ -n "$dry_run" ]; then
    print_command mkdir -p "$out"
    say "$(print_command "${generate[@]}") >$(print_command "$out/generate.txt")"
    say "$(print_command "${order[@]}") >$(print_command "$out/hypotheses.txt")"
    print_command "${bleu[@]}"
    if [ -f "$documents" ]; then
        say "$(print_command "${join_translations[@]}") >$(print_command "$out/documents.txt")"
        say "$(print_command "${join_reference[@]}") >$(print_command "$out/documents.reference")"
        print_command "${bleu_of_documents[@]}"
    fi
    exit 0
fi

settings=$(
    printf 'subset=%s beam=%s flags=%s%s\n' "$subset" "$beam" "${flags[*]@Q}" "$ways"
    cat -- "${checkpoints[@]}" "$reference" "$data/$pieces" "$data/dict.$source.txt" \
        "$data/$subset.$source-$target.$source.bin" | sha256sum
    [ ! -f "$documents" ] || sha256sum <"$documents"
)
if [ ! -f "$out/score.json" ] || [ "$(cat -- "$out/settings" 2>/dev/null)" != "$settings" ]; then
    rm -f -- "$out"/{settings,score.json,generate.txt,hypotheses.txt} "$out"/documents.{txt,reference,json}
    say "decoding $subset with beam $beam" >&2
    write_file "$out/generate.txt" "${measured[@]}" "${generate[@]}" 2>"$out/generate.log" ||
        fail "fairseq-generate stopped: $(tail -n 1 "$out/generate.log")"
    write_file "$out/hypotheses.txt" "${order[@]}" || exit 1
    write_file "$out/bleu.json" "${bleu[@]}" || fail "sacrebleu stopped; see the lines above"
    documents_score=()
    [ ! -f "$documents" ] || score_documents
    write_file "$out/score.json" "${recipes_helper[@]}" score_report --checkpoint "$checkpoint" \
        "${documents_score[@]}" --log "$out/generate.log" --peak-memory "$out/peak_memory" \
        --subset "$subset" --beam "$beam" --sentences "$(wc -l <"$out/hypotheses.txt")" \
        --case "$letter_case" --flags "${flags[@]}" <"$out/bleu.json" || fail "cannot write $out/score.json"
    rm -f -- "$out"/{bleu.json,peak_memory} "$out"/documents.{reference,json}
    write_file "$out/settings" printf '%s\n' "$settings"
fi
[ -z "$json" ] || write_file "$json" cat -- "$out/score.json"
python - "$out/score.json" <<'PYTHON'
import json
import sys

with open(sys.argv[1], encoding="utf-8") as stream:
    report = json.load(stream)
about = f"{report['sentences']} sentences, beam {report['beam']}, {':'.join(report['checkpoints'])}"
if report.get("case") == "lowercase":
    about += "; the data set is lowercased, so case does not count"
print(f"SacreBLEU {report['subset']} {report['signature']} = {report['score']} ({about})")
if "documents" in report:
    whole = report["documents"]
    print(
        f"SacreBLEU {report['subset']}, whole documents, {whole['signature']} = {whole['score']} "
        f"({whole['number']} documents)"
    )
PYTHON
