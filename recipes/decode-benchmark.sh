#!/usr/bin/env bash
# Speed and memory of decoding by length: RFA beside softmax, both with random weights, no data
# needed. Greedy and with beam 5.
#
#   recipes/decode-benchmark.sh --lengths "32 128 512" --threads 1
#
# --out DIR         where everything is written (default runs/decode-benchmark in the repository)
# --lengths "N …"   tokens of source and target (default "32 128 256 512 1024 2048")
# --beam "N …"      each beam has a folder of its own (default "1 5")
# --batch-size N    sentences at a time (default 16)
# --arch NAME       default transformer_rfa
# --baseline NAME   transformer, which is fairseq's own, twin or ctranslate2 (default transformer)
# --device NAME     cpu or cuda (default cpu)
# --threads N       CPU threads (default 1)
# --repeats N       measurements of each model (default 3)
# -- FLAGS          any other options of python -m fairseq_rfa.benchmark decode, for example
#                   -- --decoding-precision int8 --flags rfa_feature_map=arccos
#
# Each folder gets decode.json, decode.png and table.txt. A second run repeats no beam that is
# complete. By default this takes hours on one CPU core; fewer --lengths take less.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
source "$here/lib/common.sh"
source "$here/lib/one_run.sh"
source "$here/lib/environment.sh"
end_together "$@"

out=$root/runs/decode-benchmark lengths="32 128 256 512 1024 2048" beam="1 5" batch_size=16
arch=transformer_rfa baseline=transformer device=cpu threads=1 repeats=3 flags=()
while [ $# -gt 0 ]; do
    case $1 in
        --help) usage; exit 0 ;;
        --out | --lengths | --beam | --batch-size | --arch | --baseline | --device | --threads | --repeats)
            need_value "$@"
            set_option "$1" "$2"
            shift 2
            ;;
        --) shift; flags=("$@"); break ;;
        *) unknown_option "$1" ;;
    esac
done
need_options out lengths beam batch_size arch baseline device threads repeats
read -ra all_lengths <<<"$lengths"
read -ra beams <<<"$beam"
for number in "${all_lengths[@]}"; do
    need_whole_number --lengths "$number"
done
for number in "${beams[@]}"; do
    need_whole_number --beam "$number"
done
for option in batch_size threads repeats; do
    need_whole_number "--${option//_/-}" "${!option}"
done
refuse_flags --out --lengths --beam --batch-size --arch --baseline --device --threads --repeats \
    -- "${flags[@]}"

out=$(absolute_path "$out")
activate_environment matplotlib
export OMP_NUM_THREADS=$threads
make_folder "$out"
# Settings with which nothing succeeded do not bind later runs.
complete=("$out"/beam*/table.txt)
[ -f "${complete[0]}" ] || rm -f -- "$out/settings"
same_settings "$out/settings" "lengths=${all_lengths[*]}
batch-size=$batch_size
arch=$arch
baseline=$baseline
device=$device
threads=$threads
repeats=$repeats
flags=${flags[*]@Q}"

for number in "${beams[@]}"; do
    folder=$out/beam$number
    say "== beam $number"
    mkdir -p -- "$folder"
    [ -f "$folder/table.txt" ] ||
        write_file "$folder/table.txt" python -m fairseq_rfa.benchmark decode --out "$folder" \
            --lengths "${all_lengths[@]}" --beam "$number" --batch-size "$batch_size" --arch "$arch" \
            --baseline "$baseline" --device "$device" --threads "$threads" --repeats "$repeats" \
            "${flags[@]}"
    cat -- "$folder/table.txt"
    say "results: $folder/decode.json, $folder/decode.png"
done
