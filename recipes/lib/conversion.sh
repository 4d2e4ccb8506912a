# The flags of RFA that a conversion from softmax takes as well. Source it after common.sh.

# split_flags: sets rfa_flags, which belong to RFA alone, and common_flags.
split_flags() {
    local flag kind=common_flags
    rfa_flags=() common_flags=()
    for flag in "${flags[@]}"; do
        case $flag in
            --rfa-* | --no-rfa-* | --causal-attention* | --cross-attention*) kind=rfa_flags ;;
            --encoder-attention | --encoder-attention=*) kind=rfa_flags ;;
            --*) kind=common_flags ;;
        esac
        if [ "$kind" = rfa_flags ]; then
            rfa_flags+=("$flag")
        else
            common_flags+=("$flag")
        fi
    done
}

# rfa_value FLAG DEFAULT: the value of a flag among rfa_flags.
rfa_value() {
    local value=$2 position
    for ((position = 0; position < ${#rfa_flags[@]}; position++)); do
        case ${rfa_flags[position]} in
            "$1") value=${rfa_flags[position + 1]-} ;;
            "$1="*) value=${rfa_flags[position]#*=} ;;
        esac
    done
    printf '%s\n' "$value"
}

# can_fit: whether the feature map estimates a kernel whose temperature sigma can be.
can_fit() {
    [[ $(rfa_value --rfa-feature-map gaussian) =~ ^(gaussian|positive|oprf|cosine)$ ]]
}

# refuse_architecture_of_rfa ARCH: refuses names that softmax cannot have.
refuse_architecture_of_rfa() {
    [[ ! $1 =~ ^(.*)_(gate|arccos|gate_arccos)$ ]] || fail "--arch '$1' says how RFA works, which softmax" \
        "does not; use --arch ${BASH_REMATCH[1]%_gate} with flags of RFA after --, such as --rfa-gate"
}
