/* What mpirun, mpiexec, srun or torchrun tells the processes that it starts, in their environment. */
#ifndef CLI_LAUNCHER_H
#define CLI_LAUNCHER_H

/* How many processes were started together with this one; 1 where no launcher says. */
int launcher_processes(void);

/* How many processes torchrun started, which has no MPI; 1 where it did not. */
int launcher_torchrun_processes(void);

/* Whether the launcher was told to take no notice of exit codes (Open MPI's orte_abort_on_non_zero_status=0): it then
 * ends with 0 however its processes ended, unless one of them aborts the job. */
int launcher_ignores_exit_codes(void);

#endif
