dnl SPDX-License-Identifier: Apache-2.0
dnl The launcher slurm: nothing is needed; the library is found at run time.

BPS_PLUGIN([launchers], [slurm], [yes], [launcher plugin for srun of Slurm])
