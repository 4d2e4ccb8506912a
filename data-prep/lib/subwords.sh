# What splits the words of raw text and makes it binary. Source it after common.sh and archives.sh.

# subword_options: sets way, model (the file that splits words) and size_setting by subword, merges and
# vocabulary_size; word_options say how Moses tokens are made.
# shellcheck disable=SC2034 # what the scripts read
subword_options() {
    case $subword in
        bpe) model=code size=$merges way=subword_nmt size_setting=merges=$merges ;;
        sentencepiece)
            model=sentencepiece.model size=$vocabulary_size way=sentencepiece size_setting=vocabulary_size=$size
            [ ${#word_options[@]} -eq 0 ] ||
                fail "${word_options[0]}: sentencepiece takes the text as it is; leave the flag away or use --subword bpe"
            need_module sentencepiece "run: pip install -e '.[recipes]'"
            ;;
    esac
}

# copy FROM TO
copy() {
    write_file "$2" cat -- "$1" 2>/dev/null || fail "cannot copy '$1' to '$out/$2'; is there space left?"
}

# encode WAY OPTION… FILE…
encode() {
    "${data_prep_helper[@]}" encode_text "$1" --jobs "$jobs" "${@:2}" || exit 1
}

# split_words FILE…: in $out, puts the files of raw/ into subwords in bpe/, learnt from those of them that are called
# train; `languages` are the endings of their names, or the one language of all.
split_words() {
    local text=$out/raw model_option=--model language files train=() file
    for file; do
        [[ $file != train.* ]] || train+=("$file")
    done
    if [ "$subword" = bpe ]; then
        text=$out/tokenized model_option=--codes
        mkdir -p tokenized
        for language in "${languages[@]}"; do
            files=()
            for file; do
                [[ ${#languages[@]} -gt 1 && $file != *".$language" ]] || files+=("$file")
            done
            encode moses --language "$language" "${word_options[@]}" --from "$out/raw" --to "$text" "${files[@]}"
        done
    fi
    if [ ! -f "bpe/$model" ]; then
        say "learning $subword, $size_setting"
        "${data_prep_helper[@]}" learn_subwords "$way" --size "$size" --out "$out/bpe/$model" \
            "${train[@]/#/$text/}" || exit 1
    fi
    encode "$way" "$model_option" "bpe/$model" --from "$text" --to "$out/bpe" "$@"
}

# binarize OPTION…: fairseq-preprocess with these options into $out/binarized.partial.
binarize() {
    local reason="see $out/preprocess.log"
    say "binarising"
    rm -rf binarized.partial
    fairseq-preprocess "$@" --workers "$jobs" --destdir binarized.partial >preprocess.log 2>&1 || {
        [ "$(free_space "$out")" -ge 64 ] || reason="no space left in $out"
        rm -rf binarized.partial
        fail "fairseq-preprocess failed; $reason"
    }
    rm -f binarized.partial/preprocess.log
}
