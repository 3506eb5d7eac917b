#!/bin/sh
# The cargo that maturin calls for the module in a wheel. Maturin builds one package by itself, which gives dependencies
# other features than the program beside it has, so that half of them would be compiled once more. CARGO_TO_CALL is cargo,
# and PROGRAM_AND_MODULE its arguments for both.
set -eu
case "$1" in
rustc)
    # What was built beside the module belongs into no wheel.
    "$CARGO_TO_CALL" $PROGRAM_AND_MODULE --message-format json-render-diagnostics |
        grep -v -e '"kind":\["example"\]' -e '"kind":\["bin"\]' -e '"kind":\["lib"\]'
    ;;
*) exec "$CARGO_TO_CALL" "$@" ;;
esac
