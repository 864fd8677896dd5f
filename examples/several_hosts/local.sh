#!/bin/sh
# Two processes on this machine, with two thousand rows each. The first one that fails ends the script with its code.
set -e
for rank in 0 1; do
    python fit.py --demo 2000 --n-inducing 50 --max-iter 200 \
        --coordinator 127.0.0.1:12345 --processes 2 --rank $rank &
    pids="$pids $!"
done
for pid in $pids; do wait "$pid"; done
