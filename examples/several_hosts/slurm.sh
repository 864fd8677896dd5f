#!/bin/bash
#SBATCH --job-name=svgp
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=8
#SBATCH --requeue
# A process for each of the 16 GPUs of four nodes: JAX reads the addresses from SLURM's variables, and gives each task
# the GPU of its number. If a process ends, --kill-on-bad-exit ends the others; after a requeue the fit continues from
# its checkpoint, in a folder that all nodes see.
srun --kill-on-bad-exit=1 python fit.py --rows "$SCRATCH/parts/{rank}.npy" \
    --checkpoint "$SCRATCH/fit.npz" --model "$SCRATCH/model.joblib"
