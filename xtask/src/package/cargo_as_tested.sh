#!/bin/sh
# The cargo that maturin calls when the test command makes a wheel. Maturin builds one package by itself, which gives
# dependencies other features than the tests have, so that half of them would be compiled once more for another
# program than the one that was tested. CARGO_TO_CALL is cargo, and TESTED_PROGRAM its arguments for that program.
set -eu
case "$1" in
rustc)
    # What was built beside the program belongs into no wheel.
    "$CARGO_TO_CALL" $TESTED_PROGRAM --message-format json-render-diagnostics |
        grep -v '"kind":\["example"\]'
    ;;
*) exec "$CARGO_TO_CALL" "$@" ;;
esac
