#!/usr/bin/env bash
# Transfer between softmax attention and random feature attention (RFA), as in appendix C.3 and C.4
# of the paper: each model with the other's attention, without and with fine-tuning.
#
#   recipes/transfer-study.sh --data data/multi30k --out runs/transfer --preset multi30k \
#       --softmax-checkpoint runs/softmax/checkpoint_best.pt
#
# --data DIR        folder made by data-prep/
# --out DIR         each run goes into a folder of its own here, and so does the report
# --preset NAME     small (default; for the corpus of recipes/quickstart.sh on a CPU), multi30k (CPU)
#                   or iwslt14 (the paper's model, on a GPU)
# --softmax-checkpoint FILE, --rfa-checkpoint FILE
#                   trained models with the sizes of --arch; without one, the model is trained first
# --source-updates N, --arm-updates N
#                   updates of these trainings and of each arm
# --arm-lr N, --arm-warmup N
#                   learning rate of all arms: after so many updates of warm-up it is at its greatest,
#                   then it falls with the inverse square root; the optimizer starts anew
# --imitate NAME    what RFA made from softmax imitates: unit-length (default: queries and keys of unit
#                   length, with sigma at its start and, in an arm more, fitted to each head of
#                   softmax) or softmax (unnormalised); may be repeated
# --arm NAME        only this row of the table, and what it needs; may be repeated
# --zero-shot       study other maps and numbers of directions, without fine-tuning, too
# --log-interval N  updates of a row of the curves (default 10)
# --smooth N        updates of the window whose mean is compared with the source (default 50)
# --arch NAME, --beam N, --seed N
#                   default: the preset's, 5, 1
# --jobs N          runs at a time (default: on a CPU one for each core, at most 4; else 1)
# --device NAME, --workers N, --precision NAME, --max-tokens N, --update-tokens N
#                   as in recipes/iwslt14.sh
# --dry-run         print the commands, ready to copy, and do nothing
# -- FLAGS          any flags of fairseq-train, for every training; those that start with --rfa- only
#                   for RFA, and for the conversions to it
#
# The arms (RFA from softmax and softmax from RFA, with the attention projections kept and reset, and
# both from scratch) see the same batches in the same order. The arm softmax_continued is their
# control: softmax from softmax, which shows what the further updates alone are worth. The source's
# training loss is measured like theirs: its training goes on for one epoch with learning rate 0. Test
# data are not touched.
#
# The queue may be stopped at any time; the same command continues it and repeats nothing that is
# complete. The report is transfer_study.json, .md, .csv and .png; TensorBoard reads the
# folder tensorboard.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
source "$here/lib/common.sh"
source "$here/lib/one_run.sh"
source "$here/hyperparameters.sh"
source "$here/lib/training.sh"
source "$here/lib/devices.sh"
source "$here/lib/queue.sh"
source "$here/lib/conversion.sh"
source "$here/lib/transfer/plan.sh"
source "$here/lib/transfer/runs.sh"

data='' out='' preset=small softmax_checkpoint='' rfa_checkpoint='' imitate=() zero_shot='' dry_run=''
source_updates='' arm_updates='' arm_lr='' arm_warmup='' log_interval=10 smooth=50 beam=5 seed=1 jobs=''
device='' workers=1 precision='' max_tokens=4096 flags=()
given_arch='' given_update_tokens='' chosen=()
while [ $# -gt 0 ]; do
    case $1 in
        --help) usage; exit 0 ;;
        --data | --out | --preset | --softmax-checkpoint | --rfa-checkpoint | --source-updates | \
            --arm-updates | --arm-lr | --arm-warmup | --log-interval | --smooth | --beam | --seed | --jobs | \
            --device | --workers | --precision | --max-tokens)
            need_value "$@"
            set_option "$1" "$2"
            shift 2
            ;;
        --arch | --update-tokens)
            need_value "$@"
            set_option "--given-${1#--}" "$2"
            shift 2
            ;;
        --arm)
            need_value "$@"
            chosen+=("$2")
            shift 2
            ;;
        --imitate)
            need_value "$@"
            [[ $2 =~ ^(unit-length|softmax)$ ]] || fail "--imitate '$2' is not one of unit-length, softmax"
            imitate+=("$2")
            shift 2
            ;;
        --zero-shot | --dry-run) set_option "$1" yes; shift ;;
        --) shift; flags=("$@"); break ;;
        *) unknown_option "$1" ;;
    esac
done
need_options data out
choose_preset
check_options
check_data
split_flags

softmax_start=$softmax_checkpoint rfa_start=$rfa_checkpoint
out=$(absolute_path "$out")
plan_rows
plan_trainings
if [ -n "$dry_run" ]; then
    for row in "${sources[@]}" "${arms[@]}"; do
        read -ra fields <<<"$row"
        say "# ${fields[0]}"
        run_row "$out/${fields[0]}" "${fields[@]:1}"
    done
    [ -z "$zero_shot" ] || study_zero_shot
    exit 0
fi
check_machine

make_folder "$out"
out=$(absolute_path "$out")
lock_folder
prepared=("$data/binarized"/{"$pieces",dict.*.txt,train.*.bin,valid.*.bin} "$reference")
same_settings "$out/settings" "preset=$preset
arch=$arch
softmax-checkpoint=$(checksum "$softmax_checkpoint")
rfa-checkpoint=$(checksum "$rfa_checkpoint")
source-updates=$source_updates
arm-updates=$arm_updates
arm-lr=$arm_lr
arm-warmup=$arm_warmup
update-tokens=$update_tokens
precision=$precision
log-interval=$log_interval
beam=$beam
seed=$seed
flags=${flags[*]@Q}
data=$(checksum "${prepared[@]}")"
write_file "$out/queue" printf '%s\n' "${sources[@]}" "${arms[@]}"
start_queue $((${#sources[@]} + ${#arms[@]}))
run_rows run_row "${sources[@]}"
run_rows run_row "${arms[@]}"
[ -z "$zero_shot" ] || study_zero_shot
"${recipes_helper[@]}" transfer.report "$out" --smooth "$smooth"
fail_if_failed "${sources[@]}" "${arms[@]}"
