/* Recognises the launchers of MPI programs by the environment that they give their processes. */
#include "base/ranks_launcher.h"

#include <stdlib.h>

#include "base/compiler.h"

/* Open MPI; MPICH, Intel MPI and Slurm's PMI; MVAPICH; PRRTE. */
static const struct {
    const char *size, *rank;
} known[] = {
    {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
    {"PMI_SIZE", "PMI_RANK"},
    {"MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK"},
    {"PRTE_COMM_WORLD_SIZE", "PRTE_COMM_WORLD_RANK"},
};

static int number_of(const char *name)
{
    const char *text = getenv(name);
    long n = text ? strtol(text, NULL, 10) : 0;
    return n > 0 && n <= 1 << 24 ? (int)n : 0;
}

int ranks_launched(void)
{
    int n = 0;
    for (size_t i = 0; i < DS_LEN(known) && n == 0; i++)
        n = number_of(known[i].size);
    return n;
}

int ranks_launched_as(void)
{
    int rank = 0;
    for (size_t i = 0; i < DS_LEN(known) && rank == 0; i++)
        rank = number_of(known[i].size) > 0 ? number_of(known[i].rank) : 0;
    return rank;
}
