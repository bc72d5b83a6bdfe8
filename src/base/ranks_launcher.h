/* What the launcher of MPI programs says in the environment. */
#ifndef DS_BASE_RANKS_LAUNCHER_H
#define DS_BASE_RANKS_LAUNCHER_H

/* Processes that were started together; 0: not started by a launcher. */
int ranks_launched(void);
/* This one's rank among them; 0 where it is not known. */
int ranks_launched_as(void);

#endif
