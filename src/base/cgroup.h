/* Limits that the system sets for groups of processes. */
#ifndef DS_BASE_CGROUP_H
#define DS_BASE_CGROUP_H

/* What one group allows, from the files in its directory; 0 = no limit, or none that can be read. */
typedef double cgroup_limit(const char *dir);
/* The tightest limit of the process's group and of all above it; 0 when there is none.  `mount` is where cgroups are mounted
 * ("/sys/fs/cgroup"), `self` the process's list ("/proc/self/cgroup"), `controller` the name of version 1 ("cpu"). */
double cgroup_least(const char *mount, const char *self, const char *controller, cgroup_limit *v2,
                    cgroup_limit *v1);
/* The first line of dir/name; 0 when there is none. */
int cgroup_line(char *line, int size, const char *dir, const char *name);

#endif
