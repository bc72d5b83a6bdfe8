/* Leases: the right to something named, claimed by processes of one or several hosts through files
 * of a folder that all of them see.
 *
 * The file NAME@GENERATION is created by whoever claims it: exactly one process can create a
 * generation, and the highest one that exists is the lease.  Its owner changes a counter in it
 * again and again.  Whether an owner is dead is decided without comparing clocks of two hosts: a
 * process of this machine is looked up, and any other is dead once its file has not changed for as
 * long as it promised, by the clock of the observer.  The next owner creates the next generation
 * and removes the earlier ones, which the former owner finds at its next renewal if it was merely
 * suspended. */
#ifndef DS_BASE_LEASE_H
#define DS_BASE_LEASE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/fs.h"

enum { LEASE_NAME = 80, LEASE_HOST = 65, LEASE_NOTE = 512, LEASE_NONCE = 17 };

/* What the file of a lease says; untrusted text. */
struct lease_view {
    int generation; /* 0: never claimed */
    int is_held;    /* else released, with the note of its last owner */
    uint64_t mark;  /* changes whenever the file does */
    double patience;
    long pid;
    char owner[FS_OWNER_MAX], host[LEASE_HOST], nonce[LEASE_NONCE], note[LEASE_NOTE];
};

/* The leases of a folder, sorted by name; starts zeroed. */
struct lease_list {
    struct lease_name {
        char name[LEASE_NAME];
        int generation;
    } * item;
    size_t n, cap;
};
/* Reads the names again; a folder that does not exist is empty. */
int lease_list_read(struct lease_list *l, const char *dir, struct err *e) DS_CHECK;
int lease_list_find(const struct lease_list *l, const char *name); /* its generation, 0: none */
void lease_list_release(struct lease_list *l);

/* Reads the file of a generation.  One that vanished meanwhile, or cannot be understood, is held by
 * an unknown owner.  generation 0: *v says that it was never claimed. */
int lease_look(struct lease_view *v, const char *dir, const char *name, int generation,
               struct err *e) DS_CHECK;

/* What one observer remembers of a lease; starts zeroed. */
struct lease_watch {
    int generation;
    uint64_t mark;
    double since;  /* by clock_mono: when it last changed */
    int has_moved; /* it changed while it was watched */
};
enum lease_life {
    LEASE_FREE,  /* never claimed, or released */
    LEASE_ALIVE, /* held, as far as this observer can know */
    LEASE_DEAD,  /* held by a process that has ended or was silent for longer than it promised */
};
enum lease_life lease_judge(struct lease_watch *w, const struct lease_view *v);

/* A lease of ours. */
struct lease {
    int fd, generation; /* fd -1: none */
    unsigned counter;
    double renewed, patience; /* when a renewal last succeeded, by clock_mono */
    char dir[1024], name[LEASE_NAME], path[1200], nonce[LEASE_NONCE];
};
#define LEASE_NONE                                                                                 \
    {                                                                                              \
        .fd = -1                                                                                   \
    }
/* Claims what was seen to be free or dead: 1 it is ours, 0 another process was first.  patience:
 * seconds without a renewal after which others may take over. */
int lease_claim(struct lease *l, const char *dir, const char *name, int seen, double patience,
                struct err *e) DS_CHECK;
/* 1 when a renewal is due: a sixth of the patience has passed. */
int lease_is_due(const struct lease *l);
/* 1 still ours; 0 it was taken over, and l is closed; DS_EIO: unknown, the folder cannot be read or
 * written now, and others may take over once the patience has passed. */
int lease_renew(struct lease *l, struct err *e) DS_CHECK;
/* Ends it: the next one may claim at once, and finds `note`.  Closes l in any case; where that fails
 * the others wait for the patience to pass, and nothing is lost. */
int lease_release(struct lease *l, const char *note, struct err *e);
/* Closes l and leaves the file as it is. */
void lease_abandon(struct lease *l);
/* Removes the file of a lease that is not held.  Only for what nobody will claim any more: a process
 * that saw an earlier generation could then claim again. */
void lease_forget(const char *dir, const char *name, int generation);

#endif
